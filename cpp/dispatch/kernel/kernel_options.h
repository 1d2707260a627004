// The shader options that follow from a device: its kernels are compiled for these.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "device/context.h"
#include "shader/preamble/shader_options.h"

namespace pumice {

// The features that a device must have to store floats of 16 bits as such.
inline constexpr std::string_view k16bitStorage = "storageBuffer16BitAccess", kBfloat16 = "shaderBFloat16Type";

// The storage mode in which a device runs kernels over such elements: fp16 where it has 16-bit storage, else fp16_packed; bf16 where it
// has the type too and this glslang knows it, else bf16_packed; fp32 for every other dtype.
Storage storage_of(const DeviceInfo& device, DType dtype);
// The mode that holds those values two to a word; fp32 for all that are no floats of 16 bits.
Storage packed_storage_of(DType dtype);
// Sentences for the small types that a text names and that the device's options do not declare: each says which features declare it.
std::vector<std::string> undeclared_types(const DeviceInfo& device, std::string_view source);
// Options for compiling on this device, without its macros.
ShaderOptions shader_options(const Context& context, Storage storage);
Profile device_profile(Context& context);  // the device's macros
// Options for compiling on this device, with its macros.
ShaderOptions device_options(Context& context, Storage storage);

}  // namespace pumice

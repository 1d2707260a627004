// Shader options derived from a device.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "device/context.h"
#include "shader/preamble/shader_options.h"

namespace pumice {

// Features required to store 16-bit floats natively.
inline constexpr std::string_view k16bitStorage = "storageBuffer16BitAccess", kBfloat16 = "shaderBFloat16Type";

// The storage mode for kernels with elements of this dtype. float16: fp16 if the device has 16-bit storage, else fp16_packed. bfloat16:
// bf16 if the device has 16-bit storage and it and this glslang support the type, else bf16_packed. All other dtypes: fp32.
Storage storage_of(const DeviceInfo& device, DType dtype);
// The packed mode (two values per word) of a 16-bit float dtype; fp32 for other dtypes.
Storage packed_storage_of(DType dtype);
// Returns a sentence for each small type used in the source that the device's options do not declare, naming the missing features.
std::vector<std::string> undeclared_types(const DeviceInfo& device, std::string_view source);
// Compile options for this device, without its macros.
ShaderOptions shader_options(const Context& context, Storage storage);
Profile device_profile(Context& context);  // the device's macros
// Compile options for this device, with its macros.
ShaderOptions device_options(Context& context, Storage storage);

}  // namespace pumice

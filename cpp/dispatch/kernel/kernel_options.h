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

// Returns the storage mode of kernels with elements of this dtype. float16: fp16 if the device has 16-bit storage, else fp16_packed.
// bfloat16: bf16 if the device has 16-bit storage and it and this glslang support the type, else bf16_packed. All other dtypes: fp32.
StorageType get_storage_type(const DeviceInfo& device, DType dtype);
// Returns the packed storage mode (two values per word) of a 16-bit float dtype; fp32 for other dtypes.
StorageType get_packed_storage_type(DType dtype);
// Returns a sentence for each 8-bit or 16-bit type in the source that the device does not support, naming the missing features.
std::vector<std::string> describe_undeclared_types(const DeviceInfo& device, std::string_view source);
// Returns the compile options for this device, without its macros.
ShaderOptions make_shader_options(const Context& context, StorageType storage);
DeviceMacroSet get_device_profile(Context& context);  // returns the macros for the device's features and limits
// Returns the compile options for this device, with its macros.
ShaderOptions make_device_options(Context& context, StorageType storage);

}  // namespace pumice

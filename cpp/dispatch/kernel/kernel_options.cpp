#include "dispatch/kernel/kernel_options.h"

#include <memory>
#include <mutex>

#include "device/device_macros.h"

namespace pumice {
namespace {

// The macros of one context's device, read at the first use.
struct DeviceProfile {
  std::once_flag once;
  Profile profile;
};

}  // namespace

Storage packed_storage_of(DType dtype) {
  return dtype == DType::float16 ? Storage::fp16_packed : dtype == DType::bfloat16 ? Storage::bf16_packed : Storage::fp32;
}

Storage storage_of(const DeviceInfo& device, DType dtype) {
  const bool words = !device.feature(k16bitStorage);
  if (dtype == DType::float16) return words ? Storage::fp16_packed : Storage::fp16;
  if (dtype != DType::bfloat16) return Storage::fp32;
  const bool native = !words && device.feature(kBfloat16) && missing_extensions(Storage::bf16).empty();
  return native ? Storage::bf16 : Storage::bf16_packed;
}

ShaderOptions shader_options(const Context& context, Storage storage) {
  ShaderOptions options;
  options.storage = storage;
  options.int64 = true;  // by pairs of words at the least
  options.int16 = context.feature("shaderInt16");
  options.int8 = context.feature("shaderInt8") && context.feature("storageBuffer8BitAccess");
  options.storage_16bit = context.feature("storageBuffer16BitAccess");
  options.fp16_rounds_to_even = context.feature("roundingModeRTEFloat16");
  options.int8_storage = context.feature("storageBuffer8BitAccess");
  options.int8_arithmetic = context.feature("shaderInt8");
  options.int16_storage = options.int16 && options.storage_16bit;
  options.int8_packed = options.int16_packed = true;
  options.shader_local_memory = context.info().kind == DeviceKind::discrete;
  return options;
}

Profile device_profile(Context& context) {
  const auto known = context.attachment<DeviceProfile>();
  std::call_once(known->once, [&] { known->profile = Profile(*device_macros(context)); });
  return known->profile;
}

ShaderOptions device_options(Context& context, Storage storage) {
  ShaderOptions options = shader_options(context, storage);
  options.profile = device_profile(context);
  return options;
}

}  // namespace pumice

#include "dispatch/kernel/kernel_options.h"

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <set>

#include "device/device_macros.h"
#include "shader/source/glsl_tokens.h"

namespace pumice {
namespace {

// Macros of a context's device, queried on first use.
struct CachedDeviceProfile {
  std::once_flag once;
  DeviceMacroSet profile;
};

// Types that make_shader_options() declares if the device has either feature.
struct SmallTypeFeatures {
  std::array<std::string_view, 4> prefixes;  // prefixes of the names of the scalar and its vectors
  std::array<std::string_view, 2> features;
};

constexpr SmallTypeFeatures kSmallTypes[] = {
    {{"int8_t", "uint8_t", "i8vec", "u8vec"}, {"shaderInt8", "storageBuffer8BitAccess"}},
    {{"int16_t", "uint16_t", "i16vec", "u16vec"}, {"shaderInt16", k16bitStorage}},
    {{"float16_t", "float16_t", "f16vec", "f16mat"}, {k16bitStorage, k16bitStorage}},
};

}  // namespace

std::vector<std::string> describe_undeclared_types(const DeviceInfo& device, std::string_view source) {
  std::set<std::string_view> tokens;
  for (const Token& token : tokenize(source))
    if (token.kind == TokenKind::word) tokens.insert(token.text);
  std::vector<std::string> sentences;
  for (const auto& [prefixes, features] : kSmallTypes) {
    if (std::ranges::any_of(features, [&](std::string_view feature) { return device.feature(feature); })) continue;
    const auto named = std::ranges::find_if(tokens, [&](std::string_view word) {
      return std::ranges::any_of(prefixes, [&](std::string_view prefix) { return word.starts_with(prefix); });
    });
    if (named == tokens.end()) continue;
    const std::string either = features[0] == features[1] ? "" : " or " + std::string(features[1]);
    sentences.push_back("the type '" + std::string(*named) + "' needs the feature " + std::string(features[0]) + either + ", which '" +
                        device.name + "' lacks");
  }
  return sentences;
}

StorageType get_packed_storage_type(DType dtype) {
  return dtype == DType::float16 ? StorageType::fp16_packed : dtype == DType::bfloat16 ? StorageType::bf16_packed : StorageType::fp32;
}

StorageType get_storage_type(const DeviceInfo& device, DType dtype) {
  const bool is_packed = !device.feature(k16bitStorage);
  if (dtype == DType::float16) return is_packed ? StorageType::fp16_packed : StorageType::fp16;
  if (dtype != DType::bfloat16) return StorageType::fp32;
  const bool native = !is_packed && device.feature(kBfloat16) && find_missing_extensions(StorageType::bf16).empty();
  return native ? StorageType::bf16 : StorageType::bf16_packed;
}

ShaderOptions make_shader_options(const Context& context, StorageType storage) {
  ShaderOptions options;
  options.storage = storage;
  options.int64 = true;  // always available, emulated if necessary
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

DeviceMacroSet get_device_profile(Context& context) {
  const auto cached = context.attachment<CachedDeviceProfile>();
  std::call_once(cached->once, [&] { cached->profile = DeviceMacroSet(*get_device_macros(context)); });
  return cached->profile;
}

ShaderOptions make_device_options(Context& context, StorageType storage) {
  ShaderOptions options = make_shader_options(context, storage);
  options.profile = get_device_profile(context);
  return options;
}

}  // namespace pumice

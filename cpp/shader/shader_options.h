// What a shader is compiled for, as explicit data: compiling needs no GPU.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pumice {

enum class Storage : uint8_t { fp32, fp16, fp16_packed, bf16, bf16_packed };

std::string_view name(Storage storage);
Storage storage_from_name(std::string_view name);  // throws UnsupportedError listing the known names

struct ShaderOptions {
  Storage storage = Storage::fp32;
  bool fp16_arithmetic = false;  // afp is half; off for all engine kernels, which accumulate in fp32
  bool fp16_uniform = false;     // lfp is half, where storage is fp16 and arithmetic too
  bool int64 = false;            // the device has shaderInt64
  bool int16 = false;
  bool int8 = false;           // 8-bit storage and arithmetic
  bool storage_16bit = false;  // storageBuffer16BitAccess
  int vulkan_minor = 1;        // target environment Vulkan 1.x; SPIR-V 1.3 for 1.1
  // Device macros (ncnn_*) and other facts, name -> text; from a device or from a profile.
  std::map<std::string, std::string> profile;

  bool operator==(const ShaderOptions&) const = default;
};

// Macro definitions given by the caller: {"TILE", "8"} or {"EPILOGUE(x)", "max(x, 0)"}.
using Macros = std::vector<std::pair<std::string, std::string>>;

// The text of the GLSL extension for these options: #extension lines, types sfp/afp/lfp and vectors, buffer_ld/st/cp/sm,
// conversions, psc(), the profile's macros. It goes between #version and the shader's own text. Pure.
std::string preamble(const ShaderOptions& options);

// GLSL extensions of these options that not every compiler has.
std::vector<std::string> optional_extensions(const ShaderOptions& options);

}  // namespace pumice

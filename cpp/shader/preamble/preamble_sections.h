// The sections of the preamble; internal to the preamble's .cpp files.
#pragma once

#include <string>
#include <string_view>

#include "shader/preamble/shader_options.h"

namespace pumice {

inline bool is_bf16(const ShaderOptions& options) {
  return options.storage == StorageType::bf16 || options.storage == StorageType::bf16_packed;
}
inline bool is_packed(const ShaderOptions& options) {
  return options.storage == StorageType::fp16_packed || options.storage == StorageType::bf16_packed;
}
// bfloat16 has no native arithmetic.
inline bool has_fp16_arithmetic(const ShaderOptions& options) {
  return options.fp16_arithmetic && !is_bf16(options);
}
inline bool targets_2024_extension(const ShaderOptions& options) {
  return options.generation == GlslExtensionVersion::year_2024;
}

// Returns "#define name text" as a line.
std::string make_define_directive(std::string_view name, std::string_view text);

std::string make_float_bits_section(const ShaderOptions& options);  // conversions between floats and 16-bit encodings, with rounding
std::string make_float_section(const ShaderOptions& options);       // types sfp, afp and lfp, with loads and stores
std::string make_integer_section(const ShaderOptions& options);
std::string make_vec8_section(const ShaderOptions& options,
                              bool declares_vec8);             // year_2024 only; declares_vec8: the shader declares a struct sfpvec8
std::string make_image_section(const ShaderOptions& options);  // year_2024 only

}  // namespace pumice

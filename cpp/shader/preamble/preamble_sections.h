// The parts of the preamble, each a catalogue of macros and functions; internal to the preamble's .cpp files.
#pragma once

#include <string>
#include <string_view>

#include "shader/preamble/shader_options.h"

namespace pumice {

inline bool is_bf16(const ShaderOptions& options) {
  return options.storage == Storage::bf16 || options.storage == Storage::bf16_packed;
}
inline bool is_packed(const ShaderOptions& options) {
  return options.storage == Storage::fp16_packed || options.storage == Storage::bf16_packed;
}
// bfloat16 has no native arithmetic.
inline bool has_fp16_arithmetic(const ShaderOptions& options) {
  return options.fp16_arithmetic && !is_bf16(options);
}
inline bool is_2024(const ShaderOptions& options) {
  return options.generation == Generation::year_2024;
}

// Returns "#define name text" as a line.
std::string define(std::string_view name, std::string_view text);

std::string float_bits(const ShaderOptions& options);    // conversion to and from 16-bit float bits, with rounding
std::string float_family(const ShaderOptions& options);  // the types sfp, afp and lfp
std::string integer_family(const ShaderOptions& options);
std::string vec8_family(const ShaderOptions& options,
                        bool declares_vec8);             // year_2024 only: vec8; declared: the shader declares a struct sfpvec8
std::string image_family(const ShaderOptions& options);  // year_2024 only

}  // namespace pumice

// The options that a shader is compiled with, as explicit data: compiling needs no GPU.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pumice {

struct TextFacts;

enum class Storage : uint8_t { fp32, fp16, fp16_packed, bf16, bf16_packed };

std::string_view name(Storage storage);
Storage storage_from_name(std::string_view name);  // throws UnsupportedError listing the known names

// The definition of the extension that a shader was written for. year_2024 has pack8, images and sfp2lfp besides, and a packed `sfp` is a
// float of 4 bytes; in the current one packed elements have 2 bytes, two of them to a word.
enum class Generation : uint8_t { current, year_2024 };

std::string_view name(Generation generation);  // "current", "2024"
Generation generation_from_name(std::string_view name);

// Device macros (ncnn_*) and other facts, name -> text: shared, never changed, compared by content.
class Profile {
 public:
  using Macros = std::map<std::string, std::string>;
  Profile() = default;
  Profile(Macros macros);  // throws ShaderCompileError for a name or a text that no macro can have
  const Macros& macros() const;
  bool operator==(const Profile& other) const { return macros_ == other.macros_ || macros() == other.macros(); }

 private:
  std::shared_ptr<const Macros> macros_;
};

struct ShaderOptions {
  Generation generation = Generation::current;
  Storage storage = Storage::fp32;
  bool fp16_arithmetic = false;  // afp is half; off for all engine kernels, which accumulate in fp32
  bool fp16_uniform = false;     // lfp is half, where storage is fp16 and arithmetic too

  // The integer families: _storage goes before _packed; with neither, an int16 takes an int, and int8 is packed all the same.
  bool int8_storage = false;  // sint8 is int8_t
  bool int8_packed = false;
  bool int8_arithmetic = false;
  bool int8_uniform = false;
  bool int16_storage = false;  // sint16 is int16_t
  bool int16_packed = false;   // two sint16 to a word

  bool shader_local_memory = false;  // the shader may prefer shared memory
  bool image_storage = false;        // year_2024: image macros
  std::set<std::string> subgroup;    // year_2024: "basic", "vote", "ballot", "shuffle"

  // Abilities of the device.
  bool int64 = false;                // shaderInt64, or pairs of words that stand for it
  bool int16 = false;                // shaderInt16
  bool int8 = false;                 // 8-bit storage and arithmetic
  bool storage_16bit = false;        // storageBuffer16BitAccess
  bool fp16_rounds_to_even = false;  // shaderRoundingModeRTEFloat16, independent of other widths: else rounding is spelled out

  bool keeps_signed_zero = false;  // the shader is told to keep the signs of zeros, infinities and NaNs of 32-bit floats

  bool guard = true;  // invocations past the threads that are asked for are left out, where the text declares no local size

  bool debug = false;  // accesses of storage buffers are checked against what is bound

  bool bounds_texels = false;  // infinities and NaNs are stored as texels of halves by way of other numbers: Quirk::texel_overflow

  bool guard_declared = false;   // `guard` for texts that declare a local size too: for users' kernels
  bool every_extension = false;  // those of types that the text does not use too: for the engine's kernels
  bool source_lines = false;     // the SPIR-V has line numbers: for loop_places(), not for compile()

  int vulkan_minor = 1;  // target environment Vulkan 1.x; SPIR-V 1.3 for 1.1
  Profile profile;       // from a device or from a dict

  bool operator==(const ShaderOptions&) const = default;
};

// Checks options. Throws UnsupportedError for options that contradict each other.
void check_options(const ShaderOptions& options);

// Macro definitions given by the caller: {"TILE", "8"} or {"EPILOGUE(x)", "max(x, 0)"}.
using Macros = std::vector<std::pair<std::string, std::string>>;

// The text of the GLSL extension for these options: #extension lines, the types of the families sfp, afp, lfp, sint8 and sint16,
// their loads, stores and conversions, psc(), the profile's macros. It goes between #version and the shader's own text. Pure.
std::string preamble(const ShaderOptions& options);

// The part of that text which the words of `texts` use, and nothing else.
std::string preamble(const ShaderOptions& options, const std::vector<std::shared_ptr<const TextFacts>>& texts);

// GLSL extensions of a storage mode that not every compiler has, and those of them that this glslang lacks: it is loaded where there
// are any.
std::vector<std::string> optional_extensions(Storage storage);
std::vector<std::string> missing_extensions(Storage storage);

// Macros of the profile that no shader sees, since this glslang lacks the GLSL extension that they promise: macro -> why. Loads
// glslang where the profile has any that depends on it.
std::map<std::string, std::string> withheld_macros(const ShaderOptions& options);

}  // namespace pumice

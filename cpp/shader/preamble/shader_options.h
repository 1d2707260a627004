// The options for compiling a shader, as explicit data: compiling needs no GPU.
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

struct ScannedSource;

enum class StorageType : uint8_t { fp32, fp16, fp16_packed, bf16, bf16_packed };

std::string_view name(StorageType storage);
StorageType parse_storage_type(std::string_view name);  // throws UnsupportedError listing the known names

// The version of the GLSL extension that a shader was written for. year_2024 also has pack8, images and sfp2lfp, and its packed `sfp` is a
// 4-byte float; in the current version packed elements have 2 bytes, two per word.
enum class GlslExtensionVersion : uint8_t { current, year_2024 };

std::string_view name(GlslExtensionVersion generation);  // "current", "2024"
GlslExtensionVersion parse_extension_version(std::string_view name);

// Macros that describe a device (ncnn_*), name -> replacement text. Shared, immutable, compared by content.
class DeviceMacroSet {
 public:
  using Macros = std::map<std::string, std::string>;
  DeviceMacroSet() = default;
  DeviceMacroSet(Macros macros);  // throws ShaderCompileError for an invalid macro name or text
  const Macros& macros() const;
  bool operator==(const DeviceMacroSet& other) const { return macros_ == other.macros_ || macros() == other.macros(); }

 private:
  std::shared_ptr<const Macros> macros_;
};

struct ShaderOptions {
  GlslExtensionVersion generation = GlslExtensionVersion::current;
  StorageType storage = StorageType::fp32;
  bool fp16_arithmetic = false;  // afp is fp16; off for all engine kernels, since they accumulate in fp32
  bool fp16_uniform = false;     // lfp is fp16 if storage and arithmetic are fp16

  // The integer families. _storage has precedence over _packed; with neither, sint16 uses an int, and int8 is packed anyway.
  bool int8_storage = false;  // sint8 is int8_t
  bool int8_packed = false;
  bool int8_arithmetic = false;
  bool int8_uniform = false;
  bool int16_storage = false;  // sint16 is int16_t
  bool int16_packed = false;   // two sint16 per word

  bool shader_local_memory = false;  // defines NCNN_shader_local_memory
  bool image_storage = false;        // year_2024: image macros
  std::set<std::string> subgroup;    // year_2024: "basic", "vote", "ballot", "shuffle"

  // Device capabilities.
  bool int64 = false;                // shaderInt64, or its emulation with pairs of words
  bool int16 = false;                // shaderInt16
  bool int8 = false;                 // 8-bit storage and arithmetic
  bool storage_16bit = false;        // storageBuffer16BitAccess
  bool fp16_rounds_to_even = false;  // shaderRoundingModeRTEFloat16, independently of other widths; if false, rounding is explicit code

  bool keeps_signed_zero = false;  // SignedZeroInfNanPreserve for 32-bit floats

  bool guard = true;  // skips invocations beyond the requested threads, if the source declares no local size

  bool debug = false;  // checks storage buffer accesses against the bound ranges

  bool clamps_texels = false;  // clamps infinities and NaNs before storing fp16 texels: Quirk::texel_overflow

  bool guard_declared = false;  // adds the guard even if the source declares a local size: for user kernels
  bool all_extensions = false;  // includes the extensions of types that the source does not use: for the engine's kernels
  bool source_lines = false;    // emits line numbers in the SPIR-V: for find_loop_locations(), not for compile()

  int vulkan_minor = 1;    // target environment Vulkan 1.x; SPIR-V 1.3 for 1.1
  DeviceMacroSet profile;  // device macros

  bool operator==(const ShaderOptions&) const = default;
};

// Throws UnsupportedError for contradictory options.
void check_options(const ShaderOptions& options);

// Caller-defined macros: {"TILE", "8"} or {"EPILOGUE(x)", "max(x, 0)"}.
using Macros = std::vector<std::pair<std::string, std::string>>;

// Returns the GLSL extension for these options: #extension lines, the types of the families sfp, afp, lfp, sint8 and sint16, their loads,
// stores and conversions, psc(), the profile's macros. Goes between #version and the shader's source. Pure.
std::string make_preamble(const ShaderOptions& options);

// Returns only the part of the preamble that `sources` use.
std::string make_preamble(const ShaderOptions& options, const std::vector<std::shared_ptr<const ScannedSource>>& sources);

// Return the GLSL extensions of a storage mode that some compilers lack, and which of them this glslang lacks (loads it if there are any).
std::vector<std::string> get_optional_extensions(StorageType storage);
std::vector<std::string> find_missing_extensions(StorageType storage);

// Returns the profile macros that are left undefined because this glslang lacks their GLSL extension: macro -> reason. Loads glslang if any
// depends on it.
std::map<std::string, std::string> find_disabled_macros(const ShaderOptions& options);

}  // namespace pumice

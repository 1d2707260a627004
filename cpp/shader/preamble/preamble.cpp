// Generates the GLSL preamble: types, macros and functions that are defined according to the storage and arithmetic types. A shader
// includes only what it uses, so that a long preamble does not slow down a short shader.
#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_set>

#include "core/error.h"
#include "shader/preamble/macro_requirements.h"
#include "shader/preamble/preamble_library.h"
#include "shader/preamble/preamble_sections.h"
#include "shader/source/glslang_loader.h"
#include "shader/source/scanned_source.h"

namespace pumice {
namespace {

constexpr std::string_view kFp16ArithmeticExtension = "GL_EXT_shader_explicit_arithmetic_types_float16";

// bfloat16 conversions have no rounding execution mode.
bool sets_rounding_mode(const ShaderOptions& options) {
  return options.fp16_rounds_to_even && !is_bf16(options);
}

// The type extensions that a shader uses. Enabling more would add overloads that make sqrt(1) ambiguous.
struct RequiredGlslTypes {
  bool int64 = true, int16 = true, int8 = true, fp16 = true;
};

bool any_starts_with(const std::vector<std::string_view>& identifiers, std::initializer_list<std::string_view> starts) {
  return std::ranges::any_of(identifiers, [&](std::string_view word) {
    return std::ranges::any_of(starts, [&](std::string_view start) { return word.starts_with(start); });
  });
}

RequiredGlslTypes find_required_types(const std::vector<std::string_view>& identifiers, LiteralSuffixes suffixes) {
  const auto has = [&](std::initializer_list<std::string_view> starts) { return any_starts_with(identifiers, starts); };
  const bool uses_packing = has({"pack", "unpack"});  // pack32(u16vec2(..)), unpack8()
  RequiredGlslTypes required;
  required.int64 = uses_packing || suffixes.has_long || has({"int64_t", "uint64_t", "i64vec", "u64vec", "clock"});
  required.int16 = uses_packing || suffixes.has_short || has({"int16_t", "uint16_t", "i16vec", "u16vec"});
  required.int8 = uses_packing || has({"int8_t", "uint8_t", "i8vec", "u8vec"});
  required.fp16 = has({"float16_t", "f16vec"});
  return required;
}

std::string make_extension_directives(const ShaderOptions& options, const RequiredGlslTypes& types = {}) {
  std::string text;
  const auto require = [&](bool required, std::string_view extension) {
    if (required) text += "#extension " + std::string(extension) + " : require\n";
  };
  require(true, "GL_GOOGLE_include_directive");
  require(options.int64 && types.int64, "GL_EXT_shader_explicit_arithmetic_types_int64");
  require(options.int16 && types.int16, "GL_EXT_shader_explicit_arithmetic_types_int16");
  require((options.int8 || options.int8_arithmetic) && types.int8, "GL_EXT_shader_explicit_arithmetic_types_int8");
  // Also for types that the device lacks: the check of the compiled shader then names the missing feature, instead of a syntax error.
  require(options.int8 || options.int8_storage || types.int8, "GL_EXT_shader_8bit_storage");
  require(options.storage_16bit || options.int16_storage || options.storage == StorageType::fp16 || options.storage == StorageType::bf16 ||
              types.int16 || types.fp16,
          "GL_EXT_shader_16bit_storage");
  require(options.fp16_arithmetic, kFp16ArithmeticExtension);
  require(sets_rounding_mode(options) || options.keeps_signed_zero, "GL_EXT_spirv_intrinsics");
  for (const auto& extension : get_optional_extensions(options.storage)) require(true, extension);
  if (options.keeps_signed_zero)
    text += "spirv_execution_mode(extensions = [\"SPV_KHR_float_controls\"], capabilities = [4466], 4461, 32);\n";
  return text;
}

// Returns the feature macros of the GLSL extension: 1 if the feature is selected, otherwise undefined.
std::string make_feature_macros(const ShaderOptions& options) {
  std::string text = make_define_directive("ncnn_glsl_version", "1");
  const auto define_if = [&](bool is_selected, std::string_view name) {
    if (is_selected) text += make_define_directive("NCNN_" + std::string(name), "1");
  };
  define_if(options.storage == StorageType::fp16, "fp16_storage");
  define_if(options.storage == StorageType::fp16_packed, "fp16_packed");
  define_if(options.storage == StorageType::bf16, "bf16_storage");
  define_if(options.storage == StorageType::bf16_packed, "bf16_packed");
  define_if(options.fp16_arithmetic, "fp16_arithmetic");
  define_if(options.fp16_uniform, "fp16_uniform");
  define_if(options.int8_storage, "int8_storage");
  define_if(options.int8_packed && !options.int8_storage, "int8_packed");
  define_if(options.int8_arithmetic, "int8_arithmetic");
  define_if(options.int8_uniform, "int8_uniform");
  define_if(options.int16_storage, "int16_storage");
  define_if(options.int16_packed && !options.int16_storage, "int16_packed");
  define_if(options.shader_local_memory, "shader_local_memory");
  for (const auto& operation : options.subgroup) define_if(true, "subgroup_" + operation);
  return text;
}

bool is_hidden_macro(std::string_view macro) {
  const auto extension = get_required_glsl_extension(macro);
  return !extension.empty() && !glslang_supports_extension(std::string(extension));
}

// Adapts a profile's 64-bit literals: the suffix `ull` is `ul` in GLSL, which rejects it in #if. Small values drop the suffix; large ones
// are clamped if the shader has no 64-bit integers.
std::string adapt_ull_literal(const ShaderOptions& options, const std::string& text) {
  const auto fits = [](const std::string& number, std::string_view limit) {
    return number.size() < limit.size() || (number.size() == limit.size() && number <= limit);
  };
  if (!text.ends_with("ull")) return text;
  const std::string number = text.substr(0, text.size() - 3);
  if (fits(number, "2147483647")) return number;
  if (options.int64) return number + "ul";
  return fits(number, "4294967295") ? number : "4294967295";
}

// Returns the profile macros that `identifiers` name, or all if it is null. A profile overrides the extension's macros.
std::string make_profile_macros(const ShaderOptions& options, const std::vector<std::string_view>* identifiers) {
  std::string text;
  const auto add = [&](const std::string& name, const std::string& value) {
    if (!is_hidden_macro(name))
      text += make_define_directive(name, adapt_ull_literal(options, value));
    else if (is_always_defined(name))
      text += make_define_directive(name, "0");
  };
  const auto& macros = options.profile.macros();
  if (!identifiers) {
    for (const auto& [name, value] : macros) add(name, value);
    return text;
  }
  if (macros.empty()) return text;
  std::set<std::string> used;
  for (const auto word : *identifiers)
    if (word.starts_with("ncnn_") || word.starts_with("NCNN_") || macros.contains(std::string(word))) used.emplace(word);
  for (const auto& name : used)
    if (const auto found = macros.find(name); found != macros.end()) add(found->first, found->second);
  return text;
}

// Wraps constructors of 8- and 16-bit types without arithmetic. glslang folds such a constructor of a constant incorrectly: float16_t(72)
// is 0, and so is int8_t(7.5). It does not fold a comma expression. One parameter is enough: these types have no constants, and their
// vector constructors take one vector.
std::string make_constructor_macros(const ShaderOptions& options, const std::vector<std::string_view>& identifiers) {
  if (any_starts_with(identifiers, {"GL_EXT_shader_explicit_arithmetic_types", "GL_AMD_gpu_shader_"}))
    return {};  // the source enables arithmetic itself
  std::string text;
  const auto add = [&](const std::string& scalar, const std::string& vector) {
    if (!any_starts_with(identifiers, {scalar, vector})) return;
    for (const std::string& type : {scalar, vector + "2", vector + "3", vector + "4"})
      text += make_define_directive(type + "(v)", type + "((0, v))");
  };
  if (!options.fp16_arithmetic) add("float16_t", "f16vec");
  if (!options.int16) add("int16_t", "i16vec"), add("uint16_t", "u16vec");
  if (!options.int8 && !options.int8_arithmetic) add("int8_t", "i8vec"), add("uint8_t", "u8vec");
  return text;
}

// Disables fp16 arithmetic up to the line where the source enables it, for 2024 source that declares a structure sfpvec8. With fp16
// arithmetic that name is f16mat2x4; the source was written for a compiler that accepts the redefinition.
std::string make_fp16_disable_directive(const ShaderOptions& options, bool declares_vec8,
                                        const std::vector<std::string_view>& identifiers) {
  const bool clashes = declares_vec8 && options.storage == StorageType::fp16 && has_fp16_arithmetic(options);
  const bool switches = std::ranges::any_of(identifiers, [](std::string_view word) {
    return word == kFp16ArithmeticExtension || word == "GL_EXT_shader_explicit_arithmetic_types";
  });
  return clashes && switches ? "#extension " + std::string(kFp16ArithmeticExtension) + " : disable\n" : "";
}

std::string make_library_source(const ShaderOptions& options, bool declares_vec8) {
  std::string text =
      make_feature_macros(options) + make_float_bits_section(options) + make_float_section(options) + make_integer_section(options);
  if (targets_2024_extension(options)) text += make_vec8_section(options, declares_vec8) + make_image_section(options);
  return text + make_define_directive("psc(x)", "((x) == 0 ? p.x : (x))");
}

// Caches the preamble libraries of recent options. A device's kernels use two or three, and generating one takes as long as all other work
// for a cached kernel.
class PreambleLibraryCache {
 public:
  std::shared_ptr<const PreambleLibrary> get(const ShaderOptions& options, bool declares_vec8) {
    const std::scoped_lock lock(mutex_);
    const auto cached = std::ranges::find_if(
        entries_, [&](const PreambleCacheEntry& entry) { return entry.declares_vec8 == declares_vec8 && entry.options == options; });
    if (cached != entries_.end()) return cached->items;
    if (entries_.size() == kMaxEntries) entries_.pop_front();
    return entries_
        .emplace_back(
            PreambleCacheEntry{options, declares_vec8, std::make_shared<PreambleLibrary>(make_library_source(options, declares_vec8))})
        .items;
  }

 private:
  static constexpr size_t kMaxEntries = 16;
  struct PreambleCacheEntry {
    ShaderOptions options;
    bool declares_vec8;
    std::shared_ptr<const PreambleLibrary> items;
  };

  std::mutex mutex_;
  std::deque<PreambleCacheEntry> entries_;
};

PreambleLibraryCache& get_preamble_library_cache() {
  static PreambleLibraryCache all;
  return all;
}

}  // namespace

std::string make_define_directive(std::string_view name, std::string_view text) {
  return "#define " + std::string(name) + " " + std::string(text) + "\n";
}

std::vector<std::string> get_optional_extensions(StorageType storage) {
  if (storage == StorageType::bf16) return {"GL_EXT_bfloat16"};
  return {};
}

std::vector<std::string> find_missing_extensions(StorageType storage) {
  std::vector<std::string> extensions = get_optional_extensions(storage);
  std::erase_if(extensions, glslang_supports_extension);
  return extensions;
}

std::map<std::string, std::string> find_disabled_macros(const ShaderOptions& options) {
  std::map<std::string, std::string> withheld;
  for (const auto& [name, text] : options.profile.macros())
    if (is_hidden_macro(name))
      withheld[name] = "needs the GLSL extension " + std::string(get_required_glsl_extension(name)) + ", which glslang " +
                       std::string(get_glslang_version()) + " lacks";
  return withheld;
}

std::string make_preamble(const ShaderOptions& options) {
  return make_extension_directives(options) + make_profile_macros(options, nullptr) + make_library_source(options, false);
}

std::string make_preamble(const ShaderOptions& options, const std::vector<std::shared_ptr<const ScannedSource>>& sources) {
  std::vector<std::string_view> identifiers;
  LiteralSuffixes suffixes;
  bool has_token_pasting = false, declares_vec8 = false;
  std::unordered_set<std::string_view> visited;
  for (const auto& text : sources) {
    for (const auto word : text->identifiers)
      if (visited.insert(word).second) identifiers.push_back(word);
    has_token_pasting = has_token_pasting || text->has_token_pasting;
    suffixes.has_long |= text->suffixes.has_long, suffixes.has_short |= text->suffixes.has_short;
    declares_vec8 =
        declares_vec8 || (targets_2024_extension(options) && std::ranges::find(text->structures, "sfpvec8") != text->structures.end());
  }
  const auto all = get_preamble_library_cache().get(options, declares_vec8);
  const std::string end = make_fp16_disable_directive(options, declares_vec8, identifiers);
  if (has_token_pasting) {  // pasted names may not be in `identifiers`
    const auto all_words = find_identifiers(all->text());
    identifiers.insert(identifiers.end(), all_words.begin(), all_words.end());
    return make_extension_directives(options) + make_profile_macros(options, nullptr) + all->text() + end +
           make_constructor_macros(options, identifiers);
  }
  const std::string selected = make_profile_macros(options, &identifiers) + all->select_items(identifiers);
  for (const auto word : find_identifiers(selected)) identifiers.push_back(word);
  const std::string rest = selected + end + make_constructor_macros(options, identifiers);
  if (options.all_extensions) return make_extension_directives(options) + rest;
  const LiteralSuffixes more = find_literal_suffixes(selected);
  suffixes.has_long |= more.has_long, suffixes.has_short |= more.has_short;
  return make_extension_directives(options, find_required_types(identifiers, suffixes)) + rest;
}

}  // namespace pumice

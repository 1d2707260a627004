// The GLSL extension: one set of names whose meaning follows the storage and arithmetic types. Each part is a catalogue of macros and
// functions; a shader includes only those that it names, so that a long preamble does not slow down a short shader.
#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_set>

#include "core/error.h"
#include "shader/preamble/macro_gates.h"
#include "shader/preamble/preamble_library.h"
#include "shader/preamble/preamble_sections.h"
#include "shader/source/glslang_loader.h"
#include "shader/source/source_facts.h"

namespace pumice {
namespace {

constexpr std::string_view kHalfArithmetic = "GL_EXT_shader_explicit_arithmetic_types_float16";

// bfloat16 conversions have no rounding execution mode.
bool sets_rounding(const ShaderOptions& options) {
  return options.fp16_rounds_to_even && !is_bf16(options);
}

// The type extensions that a shader uses. Enabling more would add overloads that make sqrt(1) ambiguous.
struct NeededTypes {
  bool int64 = true, int16 = true, int8 = true;
};

bool any_starts_with(const std::vector<std::string_view>& words, std::initializer_list<std::string_view> starts) {
  return std::ranges::any_of(words, [&](std::string_view word) {
    return std::ranges::any_of(starts, [&](std::string_view start) { return word.starts_with(start); });
  });
}

NeededTypes needed_types(const std::vector<std::string_view>& words, LiteralSuffixes suffixes) {
  const auto has = [&](std::initializer_list<std::string_view> starts) { return any_starts_with(words, starts); };
  const bool packs = has({"pack", "unpack"});  // pack32(u16vec2(..)), unpack8()
  NeededTypes needed;
  needed.int64 = packs || suffixes.has_long || has({"int64_t", "uint64_t", "i64vec", "u64vec", "clock"});
  needed.int16 = packs || suffixes.has_short || has({"int16_t", "uint16_t", "i16vec", "u16vec"});
  needed.int8 = packs || has({"int8_t", "uint8_t", "i8vec", "u8vec"});
  return needed;
}

std::string extensions(const ShaderOptions& options, const NeededTypes& types = {}) {
  std::string text;
  const auto need = [&](bool needed, std::string_view extension) {
    if (needed) text += "#extension " + std::string(extension) + " : require\n";
  };
  need(true, "GL_GOOGLE_include_directive");
  need(options.int64 && types.int64, "GL_EXT_shader_explicit_arithmetic_types_int64");
  need(options.int16 && types.int16, "GL_EXT_shader_explicit_arithmetic_types_int16");
  need((options.int8 || options.int8_arithmetic) && types.int8, "GL_EXT_shader_explicit_arithmetic_types_int8");
  need(options.int8 || options.int8_storage, "GL_EXT_shader_8bit_storage");
  need(options.storage_16bit || options.int16_storage || options.storage == Storage::fp16 || options.storage == Storage::bf16,
       "GL_EXT_shader_16bit_storage");
  need(options.fp16_arithmetic, kHalfArithmetic);
  need(sets_rounding(options) || options.keeps_signed_zero, "GL_EXT_spirv_intrinsics");
  for (const auto& extension : optional_extensions(options.storage)) need(true, extension);
  if (options.keeps_signed_zero)
    text += "spirv_execution_mode(extensions = [\"SPV_KHR_float_controls\"], capabilities = [4466], 4461, 32);\n";
  return text;
}

// Returns the extension's own feature macros: 1 if selected, else undefined.
std::string feature_macros(const ShaderOptions& options) {
  std::string text = define("ncnn_glsl_version", "1");
  const auto tell = [&](bool chosen, std::string_view name) {
    if (chosen) text += define("NCNN_" + std::string(name), "1");
  };
  tell(options.storage == Storage::fp16, "fp16_storage");
  tell(options.storage == Storage::fp16_packed, "fp16_packed");
  tell(options.storage == Storage::bf16, "bf16_storage");
  tell(options.storage == Storage::bf16_packed, "bf16_packed");
  tell(options.fp16_arithmetic, "fp16_arithmetic");
  tell(options.fp16_uniform, "fp16_uniform");
  tell(options.int8_storage, "int8_storage");
  tell(options.int8_packed && !options.int8_storage, "int8_packed");
  tell(options.int8_arithmetic, "int8_arithmetic");
  tell(options.int8_uniform, "int8_uniform");
  tell(options.int16_storage, "int16_storage");
  tell(options.int16_packed && !options.int16_storage, "int16_packed");
  tell(options.shader_local_memory, "shader_local_memory");
  for (const auto& operation : options.subgroup) tell(true, "subgroup_" + operation);
  return text;
}

bool is_withheld(std::string_view macro) {
  const auto extension = glsl_extension_of(macro);
  return !extension.empty() && !glslang_accepts(std::string(extension));
}

// Adapts a profile's 64-bit literals: the suffix `ull` is `ul` in GLSL, which rejects it in #if. Small values drop the suffix; large ones
// are clamped if the shader has no 64-bit integers.
std::string number_for(const ShaderOptions& options, const std::string& text) {
  const auto fits = [](const std::string& digits, std::string_view limit) {
    return digits.size() < limit.size() || (digits.size() == limit.size() && digits <= limit);
  };
  if (!text.ends_with("ull")) return text;
  const std::string digits = text.substr(0, text.size() - 3);
  if (fits(digits, "2147483647")) return digits;
  if (options.int64) return digits + "ul";
  return fits(digits, "4294967295") ? digits : "4294967295";
}

// Returns the profile macros that `words` name, or all if it is null. A profile overrides the extension's macros.
std::string profile_macros(const ShaderOptions& options, const std::vector<std::string_view>* words) {
  std::string text;
  const auto add = [&](const std::string& name, const std::string& value) {
    if (!is_withheld(name))
      text += define(name, number_for(options, value));
    else if (always_defined(name))
      text += define(name, "0");
  };
  const auto& macros = options.profile.macros();
  if (!words) {
    for (const auto& [name, value] : macros) add(name, value);
    return text;
  }
  if (macros.empty()) return text;
  std::set<std::string> used;
  for (const auto word : *words)
    if (word.starts_with("ncnn_") || word.starts_with("NCNN_") || macros.contains(std::string(word))) used.emplace(word);
  for (const auto& name : used)
    if (const auto found = macros.find(name); found != macros.end()) add(found->first, found->second);
  return text;
}

// Wraps constructors of 8- and 16-bit types without arithmetic. glslang folds such a constructor of a constant incorrectly: float16_t(72)
// is 0, and so is int8_t(7.5). It does not fold a comma expression. One parameter is enough: these types have no constants, and their
// vector constructors take one vector.
std::string constructor_macros(const ShaderOptions& options, const std::vector<std::string_view>& words) {
  if (any_starts_with(words, {"GL_EXT_shader_explicit_arithmetic_types", "GL_AMD_gpu_shader_"})) return {};  // the source enables it itself
  std::string text;
  const auto add = [&](const std::string& scalar, const std::string& vector) {
    if (!any_starts_with(words, {scalar, vector})) return;
    for (const std::string& type : {scalar, vector + "2", vector + "3", vector + "4"}) text += define(type + "(v)", type + "((0, v))");
  };
  if (!options.fp16_arithmetic) add("float16_t", "f16vec");
  if (!options.int16) add("int16_t", "i16vec"), add("uint16_t", "u16vec");
  if (!options.int8 && !options.int8_arithmetic) add("int8_t", "i8vec"), add("uint8_t", "u8vec");
  return text;
}

// Disables fp16 arithmetic up to the line where the source enables it, for 2024 source that declares a structure sfpvec8. With fp16
// arithmetic that name is f16mat2x4; the source was written for a compiler that accepts the redefinition.
std::string struct_allowance(const ShaderOptions& options, bool declares_wide, const std::vector<std::string_view>& words) {
  const bool clashes = declares_wide && options.storage == Storage::fp16 && half_arithmetic(options);
  const bool switches = std::ranges::any_of(
      words, [](std::string_view word) { return word == kHalfArithmetic || word == "GL_EXT_shader_explicit_arithmetic_types"; });
  return clashes && switches ? "#extension " + std::string(kHalfArithmetic) + " : disable\n" : "";
}

std::string catalogue(const ShaderOptions& options, bool declares_wide) {
  std::string text = feature_macros(options) + float_bits(options) + float_family(options) + integer_family(options);
  if (is_2024(options)) text += wide_family(options, declares_wide) + image_family(options);
  return text + define("psc(x)", "((x) == 0 ? p.x : (x))");
}

// Caches the catalogues of recent options. A device's kernels use two or three, and generating and parsing one takes as long as all other
// work for a cached kernel.
class Catalogues {
 public:
  std::shared_ptr<const CatalogueItems> of(const ShaderOptions& options, bool declares_wide) {
    const std::scoped_lock lock(mutex_);
    const auto known =
        std::ranges::find_if(known_, [&](const Known& one) { return one.declares_wide == declares_wide && one.options == options; });
    if (known != known_.end()) return known->items;
    if (known_.size() == kMost) known_.pop_front();
    return known_.emplace_back(Known{options, declares_wide, std::make_shared<CatalogueItems>(catalogue(options, declares_wide))}).items;
  }

 private:
  static constexpr size_t kMost = 16;
  struct Known {
    ShaderOptions options;
    bool declares_wide;
    std::shared_ptr<const CatalogueItems> items;
  };

  std::mutex mutex_;
  std::deque<Known> known_;
};

Catalogues& catalogues() {
  static Catalogues all;
  return all;
}

}  // namespace

std::string define(std::string_view name, std::string_view text) {
  return "#define " + std::string(name) + " " + std::string(text) + "\n";
}

std::vector<std::string> optional_extensions(Storage storage) {
  if (storage == Storage::bf16) return {"GL_EXT_bfloat16"};
  return {};
}

std::vector<std::string> missing_extensions(Storage storage) {
  std::vector<std::string> extensions = optional_extensions(storage);
  std::erase_if(extensions, glslang_accepts);
  return extensions;
}

std::map<std::string, std::string> withheld_macros(const ShaderOptions& options) {
  std::map<std::string, std::string> withheld;
  for (const auto& [name, text] : options.profile.macros())
    if (is_withheld(name))
      withheld[name] = "needs the GLSL extension " + std::string(glsl_extension_of(name)) + ", which glslang " +
                       std::string(glslang_version()) + " lacks";
  return withheld;
}

std::string preamble(const ShaderOptions& options) {
  return extensions(options) + profile_macros(options, nullptr) + catalogue(options, false);
}

std::string preamble(const ShaderOptions& options, const std::vector<std::shared_ptr<const TextFacts>>& texts) {
  std::vector<std::string_view> words;
  LiteralSuffixes suffixes;
  bool pastes = false, declares_wide = false;
  std::unordered_set<std::string_view> seen;
  for (const auto& text : texts) {
    for (const auto word : text->words)
      if (seen.insert(word).second) words.push_back(word);
    pastes = pastes || text->pastes;
    suffixes.has_long |= text->suffixes.has_long, suffixes.has_short |= text->suffixes.has_short;
    declares_wide = declares_wide || (is_2024(options) && std::ranges::find(text->structures, "sfpvec8") != text->structures.end());
  }
  const auto all = catalogues().of(options, declares_wide);
  const std::string end = struct_allowance(options, declares_wide, words);
  if (pastes) {  // pasted names may not be in `words`
    const auto all_words = words_of(all->text());
    words.insert(words.end(), all_words.begin(), all_words.end());
    return extensions(options) + profile_macros(options, nullptr) + all->text() + end + constructor_macros(options, words);
  }
  const std::string used = profile_macros(options, &words) + all->used(words);
  for (const auto word : words_of(used)) words.push_back(word);
  const std::string rest = used + end + constructor_macros(options, words);
  if (options.every_extension) return extensions(options) + rest;
  const LiteralSuffixes more = literal_suffixes(used);
  suffixes.has_long |= more.has_long, suffixes.has_short |= more.has_short;
  return extensions(options, needed_types(words, suffixes)) + rest;
}

}  // namespace pumice

#include "shader/debug/debug_functions.h"

#include <algorithm>
#include <set>

#include "shader/source/glsl_tokens.h"

namespace pumice {
namespace {

// A GLSL type that printf accepts: scalar name, prefix of the vector names, and required extension.
struct PrintfArgumentType {
  std::string_view scalar, vector, extension;  // extension: substring of the GLSL extension's name that enables the type
  bool is_float, is_64bit;
};
constexpr PrintfArgumentType kArgumentTypes[] = {
    {"bool", "bvec", "", false, false},
    {"int", "ivec", "", false, false},
    {"uint", "uvec", "", false, false},
    {"float", "vec", "", true, false},
    {"double", "dvec", "", true, true},
    {"float16_t", "f16vec", "arithmetic_types_float16", true, false},
    {"int8_t", "i8vec", "arithmetic_types_int8", false, false},
    {"uint8_t", "u8vec", "arithmetic_types_int8", false, false},
    {"int16_t", "i16vec", "arithmetic_types_int16", false, false},
    {"uint16_t", "u16vec", "arithmetic_types_int16", false, false},
    {"int64_t", "i64vec", "arithmetic_types_int64", false, true},
    {"uint64_t", "u64vec", "arithmetic_types_int64", false, true},
};

// Returns a GLSL expression for the words of one component; empty if the conversion does not accept the type.
std::string make_component_words_expression(const PrintfArgumentType& type, bool is_float, bool is_64bit, const std::string& component) {
  if (type.is_float != is_float || (type.is_64bit && !is_64bit) || (is_float && is_64bit && !type.is_64bit)) return {};
  if (is_float)
    return is_64bit ? "unpackDouble2x32(" + component + ").x, unpackDouble2x32(" + component + ").y"
                    : "floatBitsToUint(float(" + component + "))";
  const bool is_signed = type.scalar.starts_with('i');
  if (!is_64bit) return is_signed ? "uint(int(" + component + "))" : "uint(" + component + ")";
  if (type.is_64bit) return "uint(" + component + "), uint(" + component + " >> 32)";
  return is_signed ? "uint(int(" + component + ")), uint(int(" + component + ") >> 31)" : "uint(" + component + "), 0u";
}

// Defines an overload for every type, to prevent implicit conversions. For a mismatched type it returns bool, so that the call does not
// compile.
std::string make_converter_overloads(const std::string& name, bool is_float, bool is_64bit, std::string_view extensions) {
  std::string glsl;
  for (const auto& type : kArgumentTypes) {
    if (extensions.find(type.extension) == std::string_view::npos) continue;
    for (uint32_t num_components = 1; num_components <= 4; ++num_components) {
      std::string words;
      for (uint32_t component = 0; component < num_components; ++component) {
        const std::string component_glsl =
            make_component_words_expression(type, is_float, is_64bit, num_components == 1 ? "v" : "v[" + std::to_string(component) + "]");
        words += (words.empty() ? "" : ", ") + component_glsl;
        if (component_glsl.empty()) words.clear();
      }
      const std::string parameter =
          "(" + (num_components == 1 ? std::string(type.scalar) : std::string(type.vector) + std::to_string(num_components)) +
          " v) { return ";
      const std::string array = "uint[" + std::to_string(num_components * (is_64bit ? 2 : 1)) + "]";
      glsl += words.empty() ? "bool " + name + parameter + "false; }\n" : array + " " + name + parameter + array + "(" + words + "); }\n";
    }
  }
  return glsl;
}

std::string make_print_function(size_t number, const std::vector<ConversionSpecifier>& conversions) {
  std::string arguments, parameters, stores;
  uint32_t at = 0;
  for (size_t i = 0; i < conversions.size(); ++i) {
    const std::string array = "uint[" + std::to_string(conversions[i].num_words()) + "]", name = "a" + std::to_string(i);
    arguments += array + " " + std::string(kArgumentFunction) + std::to_string(number) + "_" + std::to_string(i) + "(" + array +
                 " v) { return v; }\n";
    parameters += (i ? ", " : "") + array + " " + name;
    for (uint32_t word = 0; word < conversions[i].num_words(); ++word)
      stores += " pumice_ring[at + " + std::to_string(at++) + "u] = " + name + "[" + std::to_string(word) + "];";
  }
  return arguments + "void " + std::string(kPrintFunction) + std::to_string(number) + "(" + parameters +
         ") {\n  uint at = pumice_reserve(" + std::to_string(number + 1) + "u, " + std::to_string(kRecordHeaderWords + at) +
         "u);\n  if (at != 0xffffffffu) {" + stores + " }\n}\n";
}

// An invocation reserves its words with one atomic operation, so a record is either complete or counted as lost. The first record that does
// not fit ends the list.
constexpr std::string_view kRingBufferGlsl = R"(
layout(std430, binding = 0) buffer pumice_ring_block { uint pumice_reserved, pumice_lost, pumice_violations, pumice_unused; uint pumice_ring[]; };
uint pumice_reserve(uint head, uint words) {
  uint capacity = uint(pumice_ring.length());
  if (atomicAdd(pumice_reserved, 0u) < capacity) {
    uint at = atomicAdd(pumice_reserved, words);
    if (at < capacity && capacity - at >= words) {
      pumice_ring[at] = head;
      pumice_ring[at + 1u] = gl_GlobalInvocationID.x;
      pumice_ring[at + 2u] = gl_GlobalInvocationID.y;
      pumice_ring[at + 3u] = gl_GlobalInvocationID.z;
      return at + 4u;
    }
    if (at < capacity) pumice_ring[at] = 0u;
  }
  atomicAdd(pumice_lost, 1u);
  return 0xffffffffu;
}
)";

// The bounds-check pass later inserts calls to these functions into the SPIR-V; pumice_checked keeps them alive until then.
std::string make_bounds_check_functions() {
  return R"(
layout(std430, binding = 0) readonly buffer pumice_limits_block { uint pumice_limits[]; };
bool pumice_in_bounds(const uint access, const uint index, const uint size) {
  if (index < size) return true;
  if (atomicAdd(pumice_violations, 1u) < )" +
         std::to_string(kMaxAccessRecords) + R"(u) {
    uint at = pumice_reserve()" +
         std::to_string(kAccessRecord) + "u | access, " + std::to_string(kAccessRecordWords) + R"(u);
    if (at != 0xffffffffu) {
      pumice_ring[at] = index;
      pumice_ring[at + 1u] = size;
    }
  }
  return false;
}
bool pumice_in_range(const uint access, const uint index, const uint binding, const uint offset, const uint stride, const uint scalar,
                     const uint max_index) {
  uint bytes = (pumice_limits[binding] + scalar - 1u) / scalar * scalar; /* half of the last word may be bound */
  return pumice_in_bounds(access, index, min(bytes < offset ? 0u : (bytes - offset) / stride, max_index));
}
bool pumice_checked = pumice_in_bounds(0u, 0u, 1u) || pumice_in_range(0u, 0u, 0u, 0u, 1u, 1u, 1u);
)";
}

std::string find_extension_names(std::string_view text) {
  std::string names;
  for (const auto& line : find_directives(tokenize(text), "extension"))
    if (line.size() > 1) names += std::string(line[1].text) + "\n";
  return names;
}

// Returns the names of enabled extensions. GL_EXT_shader_explicit_arithmetic_types implies all arithmetic types.
std::string find_enabled_extensions(std::string_view text) {
  std::string names = find_extension_names(text);
  if (names.find("explicit_arithmetic_types\n") == std::string::npos) return names;
  for (const auto& type : kArgumentTypes) names += std::string(type.extension) + "\n";
  return names;
}

std::string get_word_converter_name(bool is_float, bool is_64bit) {
  return std::string("pumice_") + (is_float ? "float" : "int") + (is_64bit ? "64" : "32");
}

}  // namespace

std::string get_word_converter_name(const ConversionSpecifier& conversion) {
  return get_word_converter_name(conversion.is_float(), conversion.is_64bit);
}

std::string make_debug_functions(std::string_view preprocessed, const std::vector<PrintfFormat>& formats, bool check_bounds) {
  std::string calls;
  std::set<std::pair<bool, bool>> used_types;
  for (size_t i = 0; i < formats.size(); ++i) {
    const auto conversions = parse_conversions(formats[i].text);
    for (const auto& conversion : conversions) used_types.emplace(conversion.is_float(), conversion.is_64bit);
    calls += make_print_function(i, conversions);
  }
  std::string text(kRingBufferGlsl);
  if (check_bounds) text += make_bounds_check_functions();
  const std::string extensions = find_enabled_extensions(preprocessed);
  for (const auto& [is_float, is_64bit] : used_types)
    text += make_converter_overloads(get_word_converter_name(is_float, is_64bit), is_float, is_64bit, extensions);
  return text + calls;
}

}  // namespace pumice

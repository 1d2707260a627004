#include "shader/debug/debug_functions.h"

#include <algorithm>
#include <set>

#include "shader/source/tokens.h"

namespace pumice {
namespace {

// A possible argument type: its scalar name, vector name prefix, and extension.
struct ArgumentType {
  std::string_view scalar, vector, extension;  // extension: substring of the GLSL extension's name that enables the type
  bool is_float, wide;
};
constexpr ArgumentType kTypes[] = {
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

// Returns the words of one component as GLSL; empty if the type does not fit.
std::string lane_words(const ArgumentType& type, bool is_float, bool wide, const std::string& lane) {
  if (type.is_float != is_float || (type.wide && !wide) || (is_float && wide && !type.wide)) return {};
  if (is_float) return wide ? "unpackDouble2x32(" + lane + ").x, unpackDouble2x32(" + lane + ").y" : "floatBitsToUint(float(" + lane + "))";
  const bool is_signed = type.scalar.starts_with('i');
  if (!wide) return is_signed ? "uint(int(" + lane + "))" : "uint(" + lane + ")";
  if (type.wide) return "uint(" + lane + "), uint(" + lane + " >> 32)";
  return is_signed ? "uint(int(" + lane + ")), uint(int(" + lane + ") >> 31)" : "uint(" + lane + "), 0u";
}

// Overloads exist for every type, to avoid implicit conversions. The overload of a type that does not fit returns bool, which no caller
// accepts.
std::string overloads(const std::string& name, bool is_float, bool wide, std::string_view extensions) {
  std::string text;
  for (const auto& type : kTypes) {
    if (extensions.find(type.extension) == std::string_view::npos) continue;
    for (uint32_t lanes = 1; lanes <= 4; ++lanes) {
      std::string words;
      for (uint32_t lane = 0; lane < lanes; ++lane) {
        const std::string part = lane_words(type, is_float, wide, lanes == 1 ? "v" : "v[" + std::to_string(lane) + "]");
        words += (words.empty() ? "" : ", ") + part;
        if (part.empty()) words.clear();
      }
      const std::string parameter =
          "(" + (lanes == 1 ? std::string(type.scalar) : std::string(type.vector) + std::to_string(lanes)) + " v) { return ";
      const std::string array = "uint[" + std::to_string(lanes * (wide ? 2 : 1)) + "]";
      text += words.empty() ? "bool " + name + parameter + "false; }\n" : array + " " + name + parameter + array + "(" + words + "); }\n";
    }
  }
  return text;
}

std::string print_function(size_t number, const std::vector<Conversion>& conversions) {
  std::string arguments, parameters, stores;
  uint32_t at = 0;
  for (size_t i = 0; i < conversions.size(); ++i) {
    const std::string array = "uint[" + std::to_string(conversions[i].words()) + "]", name = "a" + std::to_string(i);
    arguments += array + " " + std::string(kArgumentFunction) + std::to_string(number) + "_" + std::to_string(i) + "(" + array +
                 " v) { return v; }\n";
    parameters += (i ? ", " : "") + array + " " + name;
    for (uint32_t word = 0; word < conversions[i].words(); ++word)
      stores += " pumice_ring[at + " + std::to_string(at++) + "u] = " + name + "[" + std::to_string(word) + "];";
  }
  return arguments + "void " + std::string(kPrintFunction) + std::to_string(number) + "(" + parameters +
         ") {\n  uint at = pumice_reserve(" + std::to_string(number + 1) + "u, " + std::to_string(kRecordHeadWords + at) +
         "u);\n  if (at != 0xffffffffu) {" + stores + " }\n}\n";
}

// An invocation reserves its words with one atomic operation, so a record is either complete or counted as lost. The first record that does
// not fit ends the list.
constexpr std::string_view kRing = R"(
layout(std430, binding = 0) buffer pumice_ring_block { uint pumice_taken, pumice_lost, pumice_violations, pumice_unused; uint pumice_ring[]; };
uint pumice_reserve(uint head, uint words) {
  uint room = uint(pumice_ring.length());
  if (atomicAdd(pumice_taken, 0u) < room) {
    uint at = atomicAdd(pumice_taken, words);
    if (at < room && room - at >= words) {
      pumice_ring[at] = head;
      pumice_ring[at + 1u] = gl_GlobalInvocationID.x;
      pumice_ring[at + 2u] = gl_GlobalInvocationID.y;
      pumice_ring[at + 3u] = gl_GlobalInvocationID.z;
      return at + 4u;
    }
    if (at < room) pumice_ring[at] = 0u;
  }
  atomicAdd(pumice_lost, 1u);
  return 0xffffffffu;
}
)";

// The bounds-check pass inserts the calls into the SPIR-V later; the constant keeps the functions alive until then.
std::string bounds_functions() {
  return R"(
layout(std430, binding = 0) readonly buffer pumice_limits_block { uint pumice_limits[]; };
bool pumice_in_bounds(const uint access, const uint index, const uint size) {
  if (index < size) return true;
  if (atomicAdd(pumice_violations, 1u) < )" +
         std::to_string(kMostAccessRecords) + R"(u) {
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
                     const uint most) {
  uint bytes = (pumice_limits[binding] + scalar - 1u) / scalar * scalar; /* half of the last word may be bound */
  return pumice_in_bounds(access, index, min(bytes < offset ? 0u : (bytes - offset) / stride, most));
}
bool pumice_checked = pumice_in_bounds(0u, 0u, 1u) || pumice_in_range(0u, 0u, 0u, 0u, 1u, 1u, 1u);
)";
}

std::string extension_lines(std::string_view text) {
  std::string names;
  for (const auto& line : directives(tokenize(text), "extension"))
    if (line.size() > 1) names += std::string(line[1].text) + "\n";
  return names;
}

// GL_EXT_shader_explicit_arithmetic_types enables all of the extensions.
std::string enabled_extensions(std::string_view text) {
  std::string names = extension_lines(text);
  if (names.find("explicit_arithmetic_types\n") == std::string::npos) return names;
  for (const auto& type : kTypes) names += std::string(type.extension) + "\n";
  return names;
}

std::string words_function(bool is_float, bool wide) {
  return std::string("pumice_") + (is_float ? "float" : "int") + (wide ? "64" : "32");
}

}  // namespace

std::string words_function(const Conversion& conversion) {
  return words_function(conversion.is_float(), conversion.wide);
}

std::string debug_functions(std::string_view preprocessed, const std::vector<PrintFormat>& formats, bool check_bounds) {
  std::string calls;
  std::set<std::pair<bool, bool>> used;
  for (size_t i = 0; i < formats.size(); ++i) {
    const auto conversions = conversions_of(formats[i].text);
    for (const auto& conversion : conversions) used.emplace(conversion.is_float(), conversion.wide);
    calls += print_function(i, conversions);
  }
  std::string text(kRing);
  if (check_bounds) text += bounds_functions();
  const std::string extensions = enabled_extensions(preprocessed);
  for (const auto& [is_float, wide] : used) text += overloads(words_function(is_float, wide), is_float, wide, extensions);
  return text + calls;
}

}  // namespace pumice

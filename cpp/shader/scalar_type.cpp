#include "shader/shader.h"

namespace pumice {
namespace {

struct Facts {
  std::string_view name;
  uint32_t bytes;
};

// In the order of the enumeration.
constexpr Facts kFacts[] = {{"float16", 2}, {"bfloat16", 2}, {"float32", 4}, {"float64", 8}, {"int8", 1},   {"uint8", 1}, {"int16", 2},
                            {"uint16", 2},  {"int32", 4},    {"uint32", 4},  {"int64", 8},   {"uint64", 8}, {"other", 4}};

}  // namespace

std::string_view name(ScalarType scalar) {
  return kFacts[static_cast<size_t>(scalar)].name;
}

uint32_t bytes(ScalarType scalar) {
  return kFacts[static_cast<size_t>(scalar)].bytes;
}

}  // namespace pumice

#include "shader/preamble/scalar_type.h"

namespace pumice {
namespace {

struct ScalarDescription {
  std::string_view name;
  uint32_t bytes;
};

// Name and bytes of each ScalarType, in enum order.
constexpr ScalarDescription kScalars[] = {{"float16", 2}, {"bfloat16", 2}, {"float32", 4}, {"float64", 8}, {"int8", 1},
                                          {"uint8", 1},   {"int16", 2},    {"uint16", 2},  {"int32", 4},   {"uint32", 4},
                                          {"int64", 8},   {"uint64", 8},   {"other", 4}};

}  // namespace

std::string_view name(ScalarType scalar) {
  return kScalars[static_cast<size_t>(scalar)].name;
}

uint32_t bytes(ScalarType scalar) {
  return kScalars[static_cast<size_t>(scalar)].bytes;
}

ScalarType to_scalar_type(DType dtype) {
  if (dtype == DType::bool_) return ScalarType::uint8;
  for (size_t i = 0; i < static_cast<size_t>(ScalarType::other); ++i)
    if (kScalars[i].name == name(dtype)) return static_cast<ScalarType>(i);
  return ScalarType::other;
}

}  // namespace pumice

// The scalar types of shaders.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/dtype.h"

namespace pumice {

enum class ScalarType : uint8_t { float16, bfloat16, float32, float64, int8, uint8, int16, uint16, int32, uint32, int64, uint64, other };

std::string_view name(ScalarType scalar);  // "float16"; "other" for structures
uint32_t bytes(ScalarType scalar);         // 4 for structures
ScalarType to_scalar_type(DType dtype);    // storage type in shaders: uint8 for bool; other if shaders do not support the type

}  // namespace pumice

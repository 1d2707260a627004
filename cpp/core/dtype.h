// Element types of tensors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pumice {

enum class DType : uint8_t {
  float64,
  float32,
  float16,
  bfloat16,
  int64,
  uint64,
  int32,
  uint32,
  int16,
  uint16,
  int8,
  uint8,
  int4,
  uint4,
  bool_,
  float8_e4m3fn,
  float8_e4m3fnuz,
  float8_e5m2,
  float8_e5m2fnuz,
  float8_e8m0fnu,
  float4_e2m1fn,
  int2,
  uint2,
};

inline constexpr int kDTypeCount = 23;

// Bits per element. bool is one byte; sub-byte elements are packed, the first in the low bits.
int bits(DType dtype);

// The NumPy or ml_dtypes name: "float32", "bfloat16", "int4", "bool".
std::string_view name(DType dtype);

// Inverse of name(). Throws GraphError listing the known names if the name is unknown.
DType dtype_from_name(std::string_view name);

bool is_float(DType dtype);  // float64, float32, float16 or bfloat16; not fp8 or fp4
bool is_signed_integer(DType dtype);
bool is_integer(DType dtype);  // signed or unsigned, not bool

// A set of dtypes as a bit mask, for schemas.
using DTypeSet = uint32_t;
constexpr DTypeSet make_dtype_set(DType dtype) {
  return DTypeSet{1} << static_cast<int>(dtype);
}
template <typename... Rest>
constexpr DTypeSet make_dtype_set(DType first, Rest... rest) {
  return make_dtype_set(first) | make_dtype_set(rest...);
}
constexpr bool contains(DTypeSet set, DType dtype) {
  return (set & make_dtype_set(dtype)) != 0;
}
std::string join_dtype_names(DTypeSet set);  // e.g. "float32, float16"

// fp8 and fp4 formats: operators convert and move them, but do no arithmetic in them.
inline constexpr DTypeSet kLowBitFloats = make_dtype_set(DType::float8_e4m3fn, DType::float8_e4m3fnuz, DType::float8_e5m2,
                                                         DType::float8_e5m2fnuz, DType::float8_e8m0fnu, DType::float4_e2m1fn);
inline constexpr DTypeSet kLowBitIntegers = make_dtype_set(DType::int4, DType::uint4, DType::int2, DType::uint2);

inline constexpr DTypeSet kLowBit = kLowBitFloats | kLowBitIntegers;
constexpr bool is_low_bit(DType dtype) {
  return contains(kLowBit, dtype);
}

// Float inputs and outputs of operators. fp16 and bf16 are storage only: arithmetic and accumulation are fp32.
inline constexpr DTypeSet kOperatorFloats = make_dtype_set(DType::float32, DType::float16, DType::bfloat16);
constexpr bool is_operator_float(DType dtype) {
  return contains(kOperatorFloats, dtype);
}
constexpr bool is_16bit_float(DType dtype) {
  return dtype == DType::float16 || dtype == DType::bfloat16;
}

// Returns the float dtype of programs compiled with this precision: "fp32", "fp16" or "bf16". Throws UnsupportedError for any other.
DType get_precision_dtype(std::string_view precision);

}  // namespace pumice

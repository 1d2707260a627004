#include "operators/table/onnx_dtype.h"

#include <string>

#include "core/error.h"

namespace pumice {

std::optional<DType> from_onnx_dtype(int64_t number) {
  switch (number) {
    case 1:
      return DType::float32;
    case 2:
      return DType::uint8;
    case 3:
      return DType::int8;
    case 4:
      return DType::uint16;
    case 5:
      return DType::int16;
    case 6:
      return DType::int32;
    case 7:
      return DType::int64;
    case 9:
      return DType::bool_;
    case 10:
      return DType::float16;
    case 11:
      return DType::float64;
    case 12:
      return DType::uint32;
    case 13:
      return DType::uint64;
    case 16:
      return DType::bfloat16;
    case 17:
      return DType::float8_e4m3fn;
    case 18:
      return DType::float8_e4m3fnuz;
    case 19:
      return DType::float8_e5m2;
    case 20:
      return DType::float8_e5m2fnuz;
    case 21:
      return DType::uint4;
    case 22:
      return DType::int4;
    case 23:
      return DType::float4_e2m1fn;
    case 24:
      return DType::float8_e8m0fnu;
    case 25:
      return DType::uint2;
    case 26:
      return DType::int2;
    default:
      return {};
  }
}

int64_t to_onnx_dtype(DType dtype) {
  for (int64_t number = 1; number < 32; ++number)
    if (from_onnx_dtype(number) == dtype) return number;
  throw UnsupportedError("ONNX has no element type for " + std::string(name(dtype)));
}

}  // namespace pumice

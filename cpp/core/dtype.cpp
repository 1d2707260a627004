#include "core/dtype.h"

#include "core/error.h"

namespace pumice {
namespace {

struct DTypeInfo {
  std::string_view name;
  int bits;
};

// Names and bit widths, in the order of DType.
constexpr DTypeInfo kDTypeInfos[kDTypeCount] = {
    {"float64", 64},
    {"float32", 32},
    {"float16", 16},
    {"bfloat16", 16},
    {"int64", 64},
    {"uint64", 64},
    {"int32", 32},
    {"uint32", 32},
    {"int16", 16},
    {"uint16", 16},
    {"int8", 8},
    {"uint8", 8},
    {"int4", 4},
    {"uint4", 4},
    {"bool", 8},
    {"float8_e4m3fn", 8},
    {"float8_e4m3fnuz", 8},
    {"float8_e5m2", 8},
    {"float8_e5m2fnuz", 8},
    {"float8_e8m0fnu", 8},
    {"float4_e2m1fn", 4},
    {"int2", 2},
    {"uint2", 2},
};

const DTypeInfo& get_dtype_info(DType dtype) {
  return kDTypeInfos[static_cast<size_t>(dtype)];
}

}  // namespace

int bits(DType dtype) {
  return get_dtype_info(dtype).bits;
}

std::string_view name(DType dtype) {
  return get_dtype_info(dtype).name;
}

DType dtype_from_name(std::string_view requested) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (kDTypeInfos[i].name == requested) return static_cast<DType>(i);
  throw GraphError("", "unknown dtype '" + std::string(requested) + "'; supported: " + join_dtype_names((DTypeSet{1} << kDTypeCount) - 1));
}

bool is_float(DType dtype) {
  return dtype <= DType::bfloat16;
}

bool is_signed_integer(DType dtype) {
  return dtype == DType::int64 || dtype == DType::int32 || dtype == DType::int16 || dtype == DType::int8 ||
         contains(make_dtype_set(DType::int4, DType::int2), dtype);
}

bool is_integer(DType dtype) {
  return !is_float(dtype) && dtype != DType::bool_ && !contains(kLowBitFloats, dtype);
}

std::string join_dtype_names(DTypeSet set) {
  std::string text;
  for (int i = 0; i < kDTypeCount; ++i)
    if (contains(set, static_cast<DType>(i))) text += (text.empty() ? "" : ", ") + std::string(kDTypeInfos[i].name);
  return text;
}

DType get_precision_dtype(std::string_view precision) {
  if (precision == "fp32") return DType::float32;
  if (precision == "fp16") return DType::float16;
  if (precision == "bf16") return DType::bfloat16;
  throw UnsupportedError("precision '" + std::string(precision) + "'; supported: 'fp32', 'fp16' and 'bf16'");
}

}  // namespace pumice

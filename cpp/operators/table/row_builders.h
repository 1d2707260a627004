// Helpers for defining operator rows: schema shorthands and common shape rules.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "operators/table/lowering.h"
#include "operators/table/operator_row.h"

namespace pumice {

using OperatorRows = std::vector<OperatorRow>;

inline constexpr DTypeSet kFloats = kOperatorFloats;
inline constexpr DTypeSet kSigned = make_dtype_set(DType::int8, DType::int16, DType::int32, DType::int64);
inline constexpr DTypeSet kIntegers = kSigned | make_dtype_set(DType::uint8, DType::uint16, DType::uint32, DType::uint64);
inline constexpr DTypeSet kNumbers = kFloats | kIntegers;
inline constexpr DTypeSet kDouble = make_dtype_set(DType::float64);
inline constexpr DTypeSet kReals = kFloats | kDouble;  // dtypes of operators that also compute in fp64
inline constexpr DTypeSet kBool = make_dtype_set(DType::bool_);
inline constexpr DTypeSet kAny = kNumbers | kBool | make_dtype_set(DType::float64);
inline constexpr DTypeSet kIndices = make_dtype_set(DType::int32, DType::int64);
inline constexpr DTypeSet kInt64 = make_dtype_set(DType::int64);
inline constexpr DTypeSet kInt32 = make_dtype_set(DType::int32);

// Make roles of inputs and outputs. Roles with the same `type` letter must have the same dtype.
inline ValueRole value_role(std::string_view name, DTypeSet dtypes, char type = 0) {
  return {name, dtypes, false, false, type};
}
inline ValueRole optional_role(std::string_view name, DTypeSet dtypes, char type = 0) {
  return {name, dtypes, true, false, type};
}
inline ValueRole variadic_role(std::string_view name, DTypeSet dtypes, char type = 0) {
  return {name, dtypes, false, true, type};
}
inline ValueRole unsupported_role(std::string_view name) {
  return {name, 0, true};
}  // defined by ONNX, not supported by the engine

// Make attribute schemas: with a default value, required, or optional.
inline AttributeSchema integer_attribute(std::string_view name, int64_t fallback) {
  return {name, AttributeKind::integer, fallback};
}
inline AttributeSchema real_attribute(std::string_view name, double fallback) {
  return {name, AttributeKind::real, round_to_float32(fallback)};
}
inline AttributeSchema text_attribute(std::string_view name, std::string fallback) {
  return {name, AttributeKind::text, std::move(fallback)};
}
inline AttributeSchema choice_attribute(std::string_view name, std::string fallback, std::vector<AttributeValue> choices) {
  return {name, AttributeKind::text, std::move(fallback), false, std::move(choices)};
}
inline AttributeSchema required_attribute(std::string_view name, AttributeKind kind) {
  return {name, kind, {}};
}
inline AttributeSchema optional_attribute(std::string_view name, AttributeKind kind) {
  return {name, kind, {}, true};
}

// Returns a mask with a bit per input index, as for OperatorRow::host_inputs.
template <typename... Index>
constexpr uint32_t make_input_mask(Index... index) {
  return ((1u << index) | ...);
}

// Normalises an axis to 0 .. rank - 1 (rank included if `end` is set). Throws GraphError if it is out of range.
size_t normalize_axis(const ShapeContext& node, int64_t axis, size_t rank, bool end = false);
// Normalises distinct axes to 0 .. rank - 1.
std::vector<size_t> normalize_axes(const ShapeContext& node, const std::vector<int64_t>& axes, size_t rank);
// Throws GraphError naming the input unless its shape is [length].
void check_vector(const ShapeContext& node, size_t input, int64_t length, std::string_view label);
// Returns the shape to which all present inputs broadcast.
Shape broadcast_inputs(const ShapeContext& node);

void infer_shape_like_input(ShapeContext& node);  // output 0 has the shape and dtype of input 0

}  // namespace pumice

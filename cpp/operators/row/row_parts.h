// What the row files of the operator table share: short forms of schemas, and shape rules that many rows have.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "operators/row/lowering.h"
#include "operators/row/operator_row.h"

namespace pumice {

using Rows = std::vector<OperatorRow>;

inline constexpr DTypeSet kFloats = kWorkingFloats;
inline constexpr DTypeSet kSigned = set_of(DType::int8, DType::int16, DType::int32, DType::int64);
inline constexpr DTypeSet kIntegers = kSigned | set_of(DType::uint8, DType::uint16, DType::uint32, DType::uint64);
inline constexpr DTypeSet kNumbers = kFloats | kIntegers;
inline constexpr DTypeSet kDouble = set_of(DType::float64);
inline constexpr DTypeSet kReals = kFloats | kDouble;  // for operators that compute in double precision too
inline constexpr DTypeSet kBool = set_of(DType::bool_);
inline constexpr DTypeSet kAny = kNumbers | kBool | set_of(DType::float64);
inline constexpr DTypeSet kIndices = set_of(DType::int32, DType::int64);
inline constexpr DTypeSet kInt64 = set_of(DType::int64);
inline constexpr DTypeSet kInt32 = set_of(DType::int32);

// Inputs and outputs; those of one `type` letter have one dtype.
inline ValueRole value(std::string_view name, DTypeSet dtypes, char type = 0) {
  return {name, dtypes, false, false, type};
}
inline ValueRole optional_value(std::string_view name, DTypeSet dtypes, char type = 0) {
  return {name, dtypes, true, false, type};
}
inline ValueRole variadic_value(std::string_view name, DTypeSet dtypes, char type = 0) {
  return {name, dtypes, false, true, type};
}
inline ValueRole unsupported_value(std::string_view name) {
  return {name, 0, true};
}  // ONNX has it, the row does not

// Attributes with a default, and those that may be left out.
inline AttributeSchema integer(std::string_view name, int64_t fallback) {
  return {name, AttributeKind::integer, fallback};
}
inline AttributeSchema real(std::string_view name, double fallback) {
  return {name, AttributeKind::real, attribute_real(fallback)};
}
inline AttributeSchema text(std::string_view name, std::string fallback) {
  return {name, AttributeKind::text, std::move(fallback)};
}
inline AttributeSchema choice(std::string_view name, std::string fallback, std::vector<AttributeValue> choices) {
  return {name, AttributeKind::text, std::move(fallback), false, std::move(choices)};
}
inline AttributeSchema required(std::string_view name, AttributeKind kind) {
  return {name, kind, {}};
}
inline AttributeSchema optional(std::string_view name, AttributeKind kind) {
  return {name, kind, {}, true};
}

// Bits of OperatorRow::host_inputs.
template <typename... Index>
constexpr uint32_t host_bits(Index... index) {
  return ((1u << index) | ...);
}

// An axis as 0 .. rank - 1 (rank itself where `end` is set); GraphError where it is out of range.
size_t checked_axis(const ShapeContext& node, int64_t axis, size_t rank, bool end = false);
// Distinct axes, each as 0 .. rank - 1.
std::vector<size_t> checked_axes(const ShapeContext& node, const std::vector<int64_t>& axes, size_t rank);
// GraphError naming the input unless it is [length].
void check_vector(const ShapeContext& node, size_t input, int64_t length, std::string_view what);
// The shape that all present inputs broadcast to.
Shape broadcast_inputs(const ShapeContext& node);

// Shape rules.
void shape_like_input(ShapeContext& node);  // output 0 is as input 0

}  // namespace pumice

// Descriptions of NNAPI operations, with operands in the order of NNAPI, and shorthands for the operation tables.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "operators/table/operator_table.h"

namespace pumice::nnapi {

class Expansion;
class Operands;

enum class OperandKind : uint8_t {
  tensor,
  list,    // a vector of integers, e.g. axes or sizes
  scalar,  // a constant scalar
  pairs,   // a matrix with two columns, e.g. padding before and after each axis
  graph,   // a graph that IF or WHILE runs
};
std::string_view name(OperandKind kind);

struct Operand : ValueRole {
  OperandKind kind = OperandKind::tensor;
  bool per_channel = false;  // whether it accepts one scale per channel
};

struct Operation {
  std::string_view name;  // "nnapi::ADD"
  int level = 1;          // first NNAPI feature level with the operation
  std::string_view summary;
  std::vector<Operand> inputs, outputs;
  void (*expand)(Expansion&) = nullptr;
  std::vector<Operand> implicit = {};  // inputs of its other form: a padding scheme instead of four numbers
  // Checks rules about sizes and values; null if the checks of the expanded operators suffice.
  void (*check)(Operands&) = nullptr;
  // Returns the index of the operand, if any, whose elements binding does not need; they may be known only on the device.
  std::optional<size_t> (*unread)(const Operands&) = nullptr;
};

// Shorthands for the operation tables.
inline constexpr DTypeSet kFloat = make_dtype_set(DType::float32, DType::float16);
inline constexpr DTypeSet kQuant = make_dtype_set(DType::uint8, DType::int8);
inline constexpr DTypeSet kQuant16 = make_dtype_set(DType::uint16, DType::int16);
inline constexpr int kExperimental = 0x7FFFFFFF;  // feature level of experimental operations
inline constexpr DTypeSet kInt = make_dtype_set(DType::int32);
inline constexpr DTypeSet kTruth = make_dtype_set(DType::bool_);

inline Operand tensor_arg(std::string_view name, DTypeSet dtypes, char type = 0) {
  return {{name, dtypes, false, false, type}, OperandKind::tensor};
}
// Float tensors of an operation have the same dtype, hence the type letter.
inline Operand float_tensor_arg(std::string_view name) {
  return tensor_arg(name, kFloat, 'T');
}
inline Operand optional_float_tensor_arg(std::string_view name) {
  return {{name, kFloat, true, false, 'T'}, OperandKind::tensor};
}
inline Operand variadic_tensor_arg(std::string_view name, DTypeSet dtypes, char type = 0) {
  return {{name, dtypes, false, true, type}, OperandKind::tensor};
}
inline Operand list_arg(std::string_view name, bool optional = false) {
  return {{name, kInt, optional}, OperandKind::list};
}
inline Operand scalar_arg(std::string_view name, DTypeSet dtypes = kInt, bool optional = false) {
  return {{name, dtypes, optional}, OperandKind::scalar};
}
inline Operand float_scalar_arg(std::string_view name) {
  return scalar_arg(name, kFloat);
}
inline Operand pairs_arg(std::string_view name) {
  return {{name, kInt}, OperandKind::pairs};
}
inline Operation with_check(Operation operation, void (*check)(Operands&), std::optional<size_t> (*unread)(const Operands&) = nullptr) {
  operation.check = check;
  operation.unread = unread;
  return operation;
}

using Operations = std::vector<Operation>;

}  // namespace pumice::nnapi

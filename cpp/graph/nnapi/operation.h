// Descriptions of NNAPI operations with their operands in NNAPI's order, and shorthands for the tables.
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
  list,    // a vector: axes, sizes
  scalar,  // a constant number of rank 0
  pairs,   // a matrix of two columns: padding before and after each axis
  graph,   // a graph run by IF or WHILE
};
std::string_view name(OperandKind kind);

struct Operand : ValueRole {
  OperandKind kind = OperandKind::tensor;
  bool per_channel = false;  // accepts per-channel scales
};

struct Operation {
  std::string_view name;  // "nnapi::ADD"
  int level = 1;          // NNAPI feature level that introduced it
  std::string_view summary;
  std::vector<Operand> inputs, outputs;
  void (*expand)(Expansion&) = nullptr;
  std::vector<Operand> implicit = {};  // the operation's other form of inputs: a padding scheme instead of four numbers
  // Checks rules about sizes and values; null if the operators it expands to check enough.
  void (*check)(Operands&) = nullptr;
  // Returns the operand, if any, whose elements need not be known for binding and may be known only on the device.
  std::optional<size_t> (*unread)(const Operands&) = nullptr;
};

// Shorthands for the tables.
inline constexpr DTypeSet kFloat = set_of(DType::float32, DType::float16);
inline constexpr DTypeSet kQuant = set_of(DType::uint8, DType::int8);
inline constexpr DTypeSet kQuant16 = set_of(DType::uint16, DType::int16);
inline constexpr int kExperimental = 0x7FFFFFFF;  // level of operations without a feature level
inline constexpr DTypeSet kInt = set_of(DType::int32);
inline constexpr DTypeSet kTruth = set_of(DType::bool_);

inline Operand tensor(std::string_view name, DTypeSet dtypes, char type = 0) {
  return {{name, dtypes, false, false, type}, OperandKind::tensor};
}
inline Operand tensors(std::string_view name, DTypeSet dtypes, char type = 0) {
  return {{name, dtypes, false, true, type}, OperandKind::tensor};
}
inline Operand list(std::string_view name, bool optional = false) {
  return {{name, kInt, optional}, OperandKind::list};
}
inline Operand scalar(std::string_view name, DTypeSet dtypes = kInt, bool optional = false) {
  return {{name, dtypes, optional}, OperandKind::scalar};
}
inline Operand pairs(std::string_view name) {
  return {{name, kInt}, OperandKind::pairs};
}
inline Operation checked(Operation operation, void (*check)(Operands&), std::optional<size_t> (*unread)(const Operands&) = nullptr) {
  operation.check = check;
  operation.unread = unread;
  return operation;
}

using Operations = std::vector<Operation>;

}  // namespace pumice::nnapi

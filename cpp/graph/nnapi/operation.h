// An operation of NNAPI with its operands in their own order, and short forms for the tables of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "operators/row/operator_table.h"

namespace pumice::nnapi {

class Expansion;
class Operands;

enum class OperandKind : uint8_t {
  tensor,
  list,    // a vector: axes, sizes
  scalar,  // one number of rank 0, a constant
  pairs,   // a matrix of two columns: what is added before and after each axis
  graph,   // what IF and WHILE run
};
std::string_view name(OperandKind kind);

struct Operand : ValueRole {
  OperandKind kind = OperandKind::tensor;
  bool per_channel = false;  // scales of channels are taken
};

struct Operation {
  std::string_view name;  // "nnapi::ADD"
  int level = 1;          // the feature level that brought it
  std::string_view summary;
  std::vector<Operand> inputs, outputs;
  void (*expand)(Expansion&) = nullptr;
  std::vector<Operand> implicit = {};  // the other form of the inputs, with a scheme in place of four paddings
  // The rules about sizes and numbers; none where the rows that it becomes are as strict.
  void (*check)(Operands&) = nullptr;
  // The operand whose elements a program need not know to be bound, if there is one: the device alone may have them.
  std::optional<size_t> (*unread)(const Operands&) = nullptr;
};

// Short forms for the tables.
inline constexpr DTypeSet kFloat = set_of(DType::float32, DType::float16);
inline constexpr DTypeSet kQuant = set_of(DType::uint8, DType::int8);
inline constexpr DTypeSet kQuant16 = set_of(DType::uint16, DType::int16);
inline constexpr int kExperimental = 0x7FFFFFFF;  // the level of operations that have none yet
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

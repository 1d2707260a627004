// The checks of an operation's operands beyond the rows that it became, where something was not known yet when it was added.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "graph/description/node_check.h"
#include "graph/nnapi/operands.h"

namespace pumice::nnapi {

// Inputs 1 to 3 of a node that carries one are lists that the host reads, those behind them tensors of which the shapes alone matter, or
// lists and tensors whose elements the device may know alone.
inline constexpr size_t kFirstRequiredList = 1, kFirstRequiredTensor = 4;

struct Requirement : NodeCheck {
  explicit Requirement(Operands known) : operands(std::move(known)) {}
  // Throws what would have been thrown when the operation was added.
  void check(std::span<const TensorDesc* const> inputs, std::span<const HostTensor* const> elements) const override;
  std::vector<size_t> unread_lists(size_t inputs) const override;

  Operands operands;                              // as they were known
  std::vector<std::optional<size_t>> operand_of;  // by input of the node
  std::vector<size_t> asked_at_calls;             // inputs that are tensors whose elements the rules look at
};

}  // namespace pumice::nnapi

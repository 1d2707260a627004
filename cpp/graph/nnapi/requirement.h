// Checks of an operation's operands that could not run when it was added, in addition to the checks of the operators it expands to.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "graph/description/node_check.h"
#include "graph/nnapi/operands.h"

namespace pumice::nnapi {

// Inputs 1 to 3 of a node with a requirement are lists that the host reads. Later inputs are tensors of which only the shapes matter, or
// lists and tensors whose elements may be known only on the device.
inline constexpr size_t kFirstRequiredList = 1, kFirstRequiredTensor = 4;

struct Requirement : NodeCheck {
  explicit Requirement(Operands known) : operands(std::move(known)) {}
  // Throws the error that adding the operation would have thrown.
  void check(std::span<const TensorDesc* const> inputs, std::span<const HostTensor* const> elements) const override;
  std::vector<size_t> unread_lists(size_t inputs) const override;

  Operands operands;                              // facts as known when added
  std::vector<std::optional<size_t>> operand_of;  // indexed by input of the node
  std::vector<size_t> checked_at_calls;           // input tensors whose elements the rules check
};

}  // namespace pumice::nnapi

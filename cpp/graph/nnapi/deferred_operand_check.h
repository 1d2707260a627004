// Operand checks that could not run when an operation was added, because facts were unknown; they run at binding.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "graph/description/node_check.h"
#include "graph/nnapi/operands.h"

namespace pumice::nnapi {

// Inputs 1 to 3 of a check node are lists that the host reads. Later inputs are tensors whose elements are not checked, or lists and
// tensors whose elements may be known only on the device.
inline constexpr size_t kFirstRequiredList = 1, kFirstRequiredTensor = 4;

struct DeferredOperandCheck : NodeCheck {
  explicit DeferredOperandCheck(Operands known) : operands(std::move(known)) {}
  // Throws the error that adding the operation would have thrown.
  void check(std::span<const TensorDesc* const> inputs, std::span<const HostTensor* const> elements) const override;
  std::vector<size_t> find_inputs_checked_per_call(size_t inputs) const override;

  Operands operands;                              // facts known when the operation was added
  std::vector<std::optional<size_t>> operand_of;  // operand index of each input of the check node
  std::vector<size_t> checked_at_calls;           // inputs of the check node whose elements the rules check
};

}  // namespace pumice::nnapi

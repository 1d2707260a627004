#include "graph/nnapi/deferred_operand_check.h"

namespace pumice::nnapi {

void DeferredOperandCheck::check(std::span<const TensorDesc* const> inputs, std::span<const HostTensor* const> elements) const {
  std::vector<OperandInfo> facts = operands.facts();
  for (size_t i = 0; i < inputs.size() && i < operand_of.size(); ++i) {
    const auto operand = operand_of[i];
    if (!operand || !inputs[i]) continue;
    facts[*operand].shape = inputs[i]->shape;
    if (elements[i]) facts[*operand].elements = *elements[i];
  }
  Operands bound_operands(operands.operation(), operands.node(), std::move(facts));
  bound_operands.operation().check(bound_operands);
}

std::vector<size_t> DeferredOperandCheck::find_inputs_checked_per_call(size_t inputs) const {
  std::vector<size_t> lists = checked_at_calls;
  for (size_t i = kFirstRequiredTensor; i < inputs; ++i)
    if (const auto operand = operand_of[i]; operand && operands.get_operand_role(*operand).kind != OperandKind::tensor) lists.push_back(i);
  return lists;
}

}  // namespace pumice::nnapi

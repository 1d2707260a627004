#include "graph/nnapi/requirement.h"

namespace pumice::nnapi {

void check(const Requirement& requirement, std::span<const TensorDesc* const> inputs, std::span<const HostTensor* const> elements) {
  std::vector<Fact> facts = requirement.operands.facts();
  for (size_t i = 0; i < inputs.size() && i < requirement.operand_of.size(); ++i) {
    const auto operand = requirement.operand_of[i];
    if (!operand || !inputs[i]) continue;
    facts[*operand].shape = inputs[i]->shape;
    if (elements[i]) facts[*operand].elements = *elements[i];
  }
  Operands operands(requirement.operands.operation(), requirement.operands.node(), std::move(facts));
  operands.operation().check(operands);
}

}  // namespace pumice::nnapi

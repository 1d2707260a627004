#include "graph/binding/in_place_updates.h"

namespace pumice {

void find_in_place_updates(ExecutionPlan& plan, size_t inputs) {
  std::vector<uint32_t> reads(inputs, 0);
  for (const PlannedStep& step : plan.steps)
    for (const PlannedOperand& operand : step.operands)
      if (operand.memory == MemoryKind::input) ++reads[operand.index];
  for (const PlannedStep& step : plan.steps) {
    if (!is_word_copy(step)) continue;
    const PlannedOperand &x = step.operands[0], &y = step.operands[1];
    if (x.memory != MemoryKind::input || y.memory != MemoryKind::output || x.byte_offset != 0 || y.byte_offset != 0 || reads[x.index] != 1)
      continue;
    const TensorDesc &from = *plan.inputs[x.index].desc, &to = *plan.outputs[y.index].desc;
    if (from.dtype == to.dtype && from.shape == to.shape) plan.updates.emplace_back(x.index, y.index);
  }
}

}  // namespace pumice

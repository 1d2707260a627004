#include <map>
#include <tuple>

#include "graph/passes/passes.h"

namespace pumice {

void count_concurrent_gemms(ProgramGraph& graph) {
  std::map<std::tuple<ValueId, const OperatorRow*, Shape>, std::vector<ProgramNode*>> groups;
  for (ProgramNode& node : graph.nodes) {
    // A matmul whose epilogue reads another tensor may depend on another matmul of the group.
    if (!node.row->precision.splits_into_fp16 || node.has_residual || node.on_host || node.inputs.size() < 2 || node.inputs[1] == kAbsent)
      continue;
    const auto& matrix = graph.value(node.inputs[1]).constant;
    if (matrix && matrix->desc.rank() == 2) groups[{node.inputs[0], node.row, matrix->desc.shape}].push_back(&node);
  }
  for (const auto& [key, nodes] : groups)
    for (ProgramNode* node : nodes) node->concurrent = static_cast<int64_t>(nodes.size());
}

}  // namespace pumice

// Pattern matching: replaces subgraphs of primitive operators by single nodes.
#pragma once

#include <set>

#include "graph/passes/program_graph.h"

namespace pumice {

// The nodes replaced by pattern matches, as indices of their rows in the fusion report.
class ReplacedNodes {
 public:
  explicit ReplacedNodes(ProgramGraph& graph) : graph_(graph) {}
  void report_fused_rows(const std::vector<uint32_t>& rows, const ProgramNode& into, Fusion fusion);
  void erase_unread_nodes();  // removes the replaced nodes that have no other readers

 private:
  ProgramGraph& graph_;
  std::set<uint32_t> rows_;
};

// Matches Gelu, Swish, LayerNormalization, RMSNormalization, and the bias of a MatMul with constant weights.
void recognise_patterns(ProgramGraph& graph, const FusionSet& fusions);
// Replaces DequantizeLinear -> Conv or MatMul -> QuantizeLinear by QLinearConv or QLinearMatMul. Must run before constant folding,
// which would turn the weights into floats.
void recognise_qlinear(ProgramGraph& graph);
// Matches MatMuls with constant block-quantized weights. Must also run before constant folding.
void recognise_block_quant(ProgramGraph& graph);
// Folds BatchNormalization into the convolution before it, if its weights are constant.
void fold_batch_norm(ProgramGraph& graph);
// Matches attention, softmax(scale q k^T + mask) v, with Transposes around it, if the probabilities have no other reader.
void recognise_attention(ProgramGraph& graph);

}  // namespace pumice

// Pattern matching: replaces operators written out in primitives by single nodes.
#pragma once

#include <set>

#include "graph/passes/program_graph.h"

namespace pumice {

// Nodes replaced by a match, and their report rows.
class ReplacedNodes {
 public:
  explicit ReplacedNodes(ProgramGraph& graph) : graph_(graph) {}
  void add_match(const std::vector<uint32_t>& rows, const ProgramNode& into, Fusion fusion);
  void remove();  // removes the nodes, except those with other readers

 private:
  ProgramGraph& graph_;
  std::set<uint32_t> rows_;
};

// Recognises Gelu, Swish, row normalisations, and the bias of a product with a constant matrix.
void recognise_patterns(ProgramGraph& graph, const FusionSet& fusions);
// Recognises Conv and MatMul with DequantizeLinear inputs with a quantised result. Must run before constant folding, which would turn their
// weights into floats.
void recognise_qlinear(ProgramGraph& graph);
// Recognises products with a constant block-quantised matrix. Must also run before constant folding.
void recognise_block_quant(ProgramGraph& graph);
// Folds BatchNormalization into a preceding convolution with known weights.
void fold_batch_norm(ProgramGraph& graph);
// Recognises attention, softmax(scale q k^T + mask) v, if the probabilities have no other reader, with surrounding Transposes.
void recognise_attention(ProgramGraph& graph);

}  // namespace pumice

// Pattern matching: replaces operators written out in primitives by single nodes.
#pragma once

#include <set>

#include "graph/passes/program_graph.h"

namespace pumice {

// Nodes replaced by a match, and their report rows.
class Absorbed {
 public:
  explicit Absorbed(ProgramGraph& graph) : graph_(graph) {}
  void note(const std::vector<uint32_t>& rows, const ProgramNode& into, Fusion fusion);
  void remove();  // removes the nodes, except those with other readers

 private:
  ProgramGraph& graph_;
  std::set<uint32_t> rows_;
};

// Recognises Gelu, Swish, row normalisations, and the bias of a product with a constant matrix.
void recognise_patterns(ProgramGraph& graph, const FusionSet& wanted);
// Recognises Conv and MatMul with DequantizeLinear inputs with a quantised result. Must run before constant folding, which would turn their
// weights into floats.
void recognise_integers(ProgramGraph& graph);
// Recognises products with a constant block-quantised matrix. Must also run before constant folding.
void recognise_blocks(ProgramGraph& graph);
// Folds BatchNormalization into a preceding convolution with known weights.
void recognise_norms(ProgramGraph& graph);
// Recognises attention, softmax(scale q k^T + mask) v, if the probabilities have no other reader, with surrounding Transposes.
void recognise_attention(ProgramGraph& graph);

}  // namespace pumice

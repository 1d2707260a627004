// Operators that a graph writes out in primitives become one node again.
#pragma once

#include <set>

#include "graph/passes/program_graph.h"

namespace pumice {

// The nodes that others have taken up, and their lines of the report.
class Absorbed {
 public:
  explicit Absorbed(ProgramGraph& graph) : graph_(graph) {}
  void note(const std::vector<uint32_t>& rows, const ProgramNode& into, Fusion fusion);
  void remove();  // but for those that something else needs too

 private:
  ProgramGraph& graph_;
  std::set<uint32_t> rows_;
};

// Gelu, Swish, the normalisations of rows, and the bias of a product with a constant matrix.
void recognise_patterns(ProgramGraph& graph, const FusionSet& wanted);
// Convolutions and matrix products of DequantizeLinear whose result is quantized again. Before constants are folded, which would make
// floats of their weights.
void recognise_integers(ProgramGraph& graph);
// Products with a known matrix of few bits, which folding would make floats of too.
void recognise_blocks(ProgramGraph& graph);
// BatchNormalization after a convolution with known weights.
void recognise_norms(ProgramGraph& graph);
// Attention: softmax(scale q k^T + mask) v, whose probabilities nobody else reads, with the transpositions around it.
void recognise_attention(ProgramGraph& graph);

}  // namespace pumice

// Nodes of a 16-bit program that read or write float32 directly, which saves casts at the program's border.
#pragma once

#include <vector>

#include "graph/passes/program_graph.h"

namespace pumice {

class MixedPrecision {
 public:
  explicit MixedPrecision(const ProgramGraph& graph);

  // Whether the node also accepts float32 for this input: its kernels accept it, it reads no elements, or it is a view read only by such
  // nodes.
  bool accepts_fp32(const ProgramNode& node, size_t input) const;
  // Whether the node writes this output as float32, because only float32 program outputs use it.
  bool stores_fp32(const ProgramNode& node, size_t output) const;

 private:
  void visit(const ProgramNode& node);

  const ProgramGraph& graph_;
  std::vector<bool> readable_as_fp32_;  // for each value: whether all readers also accept float32
  std::vector<bool> only_fp32_output_;  // for each value: whether it is used only as a float32 output, directly or through views
};

}  // namespace pumice

// Finds nodes of a 16-bit program that can read or write float32 directly, which saves casts at program inputs and outputs.
#pragma once

#include <vector>

#include "graph/passes/program_graph.h"

namespace pumice {

class MixedPrecisionAnalysis {
 public:
  explicit MixedPrecisionAnalysis(const ProgramGraph& graph);

  // Whether the node also accepts float32 for this input: its kernels accept it, it does not read elements, or it is a view read only by
  // such nodes.
  bool accepts_fp32(const ProgramNode& node, size_t input) const;
  // Whether the node writes this output as float32, because it is used only as a float32 program output.
  bool stores_fp32(const ProgramNode& node, size_t output) const;

 private:
  void analyze_node(const ProgramNode& node);

  const ProgramGraph& graph_;
  std::vector<bool> readable_as_fp32_;  // for each value: whether all readers also accept float32
  std::vector<bool> only_fp32_output_;  // for each value: whether its only uses are float32 program outputs, directly or through views
};

}  // namespace pumice

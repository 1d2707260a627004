// Nodes of a 16-bit program that read or write float32 directly, which saves casts at the program's border.
#pragma once

#include <vector>

#include "graph/passes/program_graph.h"

namespace pumice {

class MixedFloats {
 public:
  explicit MixedFloats(const ProgramGraph& graph);

  // Whether the node also accepts float32 for this input: its kernels accept it, it reads no elements, or it is a view read only by such
  // nodes.
  bool takes_wide(const ProgramNode& node, size_t input) const;
  // Whether the node writes this output as float32, because only float32 program outputs use it.
  bool makes_wide(const ProgramNode& node, size_t output) const;

 private:
  void look_at(const ProgramNode& node);

  const ProgramGraph& graph_;
  std::vector<bool> read_wide_;  // for each value: whether all readers also accept float32
  std::vector<bool> left_wide_;  // for each value: whether it is used only as a float32 output, directly or through views
};

}  // namespace pumice

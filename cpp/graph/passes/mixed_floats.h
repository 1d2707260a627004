// Floats that nodes read and make as float32 although they compute with narrower ones: no cast is needed at the border of a program.
#pragma once

#include <vector>

#include "graph/passes/program_graph.h"

namespace pumice {

class MixedFloats {
 public:
  explicit MixedFloats(const ProgramGraph& graph);

  // Whether the node takes its input as float32 too: its kernels do, or need no elements, or it is a view that only such nodes read.
  bool takes_wide(const ProgramNode& node, size_t input) const;
  // Whether the node makes its output as float32, because nothing but outputs of the program that are float32 reads it.
  bool makes_wide(const ProgramNode& node, size_t output) const;

 private:
  void look_at(const ProgramNode& node);

  const ProgramGraph& graph_;
  std::vector<bool> read_wide_;  // by value: all that reads it takes float32 too
  std::vector<bool> left_wide_;  // by value: it is an output that is float32, or views of it are, and nothing else reads it
};

}  // namespace pumice

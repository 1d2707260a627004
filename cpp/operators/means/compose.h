// Lowers a row to steps of other rows, with intermediates in scratch memory.
#pragma once

#include "operators/row/operator_table.h"

namespace pumice {

// A tensor of a composition: its description and operand. Can be viewed with other descriptions of the same elements.
struct Piece {
  TensorDesc desc;
  Operand operand;
  bool is_packed = false;  // already in its consumer's packed layout

  Piece seen_as(Shape shape) const;  // packed
};

class Composition {
 public:
  explicit Composition(LowerContext& node) : node_(node) {}
  Piece input(size_t i) const;   // throws UnsupportedError if strided
  Piece output(size_t i) const;  // throws UnsupportedError if strided
  Piece scratch(DType dtype, Shape shape);
  // Adds the steps of another row. `last`: apply the node's epilogue to these steps.
  void add(std::string_view op, const Attributes& attributes, const std::vector<Piece>& inputs, const Piece& output, bool last = false);
  // `epilogue`: GLSL over x, fused into these steps.
  void add(std::string_view op, const Attributes& attributes, const std::vector<Piece>& inputs, const Piece& output,
           const std::string& epilogue);
  // Adds a map over the broadcast inputs, named a0, a1, .. in the expression.
  void map(std::string_view expression, const std::vector<Piece>& inputs, const Piece& output, bool last = false);
  void map(const Expression& expression, const std::vector<Piece>& inputs, const Piece& output, bool last = false);
  // Adds a reduction to float32 that keeps its axes with size 1.
  Piece reduce(std::string_view op, const Piece& x, const std::vector<int64_t>& axes);

 private:
  void run(const OperatorRow& row, const Attributes& attributes, const std::vector<Piece>& inputs, const Piece& output,
           const Expression* expression, const std::string& epilogue);
  Piece packed(const TensorDesc& desc, Operand operand) const;

  LowerContext& node_;
};

// Adds the steps of a lowered part of the node. `inputs`, `outputs`: the part's, as operands of the node.
void adopt(LowerContext& node, LowerContext& part, const std::vector<Operand>& inputs, const std::vector<Operand>& outputs);

// Lowers a node with input kResidualInput, which the row's kernels read in their epilogue. It is copied if its layout differs from the
// output's. If the row's result has another shape, a separate map applies the expression.
void lower_residual(LowerContext& node);

// Lowers the node with its 16-bit and 32-bit floats stored as `inside`. Other inputs are converted to scratch memory first and outputs
// last, except those that the row also supports as float32.
void lower_inside(LowerContext& node, DType inside);

// Lowers the node by its row. Copies strided tensors before and after if the row's kernels do not support them.
void lower_strided(LowerContext& node);

}  // namespace pumice

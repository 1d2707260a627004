// Lowering one row to the steps of others, with what lies between them in scratch memory.
#pragma once

#include "operators/row/operator_table.h"

namespace pumice {

// A tensor of a composition: its description and where it lies. Other descriptions of the same elements are views of it.
struct Piece {
  TensorDesc desc;
  Operand operand;
  bool is_packed = false;  // it lies as the row that reads it packs it

  Piece seen_as(Shape shape) const;  // packed
};

class Composition {
 public:
  explicit Composition(LowerContext& node) : node_(node) {}
  Piece input(size_t i) const;   // UnsupportedError where it is strided
  Piece output(size_t i) const;  // UnsupportedError where it is strided
  Piece scratch(DType dtype, Shape shape);
  // Adds the steps of another row. `last`: what is fused into the node is fused into these steps.
  void add(std::string_view op, const Attributes& attributes, const std::vector<Piece>& inputs, const Piece& output, bool last = false);
  // `epilogue`: GLSL over x, which is fused into these steps.
  void add(std::string_view op, const Attributes& attributes, const std::vector<Piece>& inputs, const Piece& output,
           const std::string& epilogue);
  // Adds a map of the broadcast inputs, which the expression calls a0, a1, ..
  void map(std::string_view expression, const std::vector<Piece>& inputs, const Piece& output, bool last = false);
  void map(const Expression& expression, const std::vector<Piece>& inputs, const Piece& output, bool last = false);
  // Adds a reduction to float32 over axes that stay, with size 1.
  Piece reduce(std::string_view op, const Piece& x, const std::vector<int64_t>& axes);

 private:
  void run(const OperatorRow& row, const Attributes& attributes, const std::vector<Piece>& inputs, const Piece& output,
           const Expression* expression, const std::string& epilogue);
  Piece packed(const TensorDesc& desc, Operand operand) const;

  LowerContext& node_;
};

// Adds the steps that a part of the node was lowered to. `inputs`, `outputs`: the part's as operands of the node.
void adopt(LowerContext& node, LowerContext& part, const std::vector<Operand>& inputs, const std::vector<Operand>& outputs);

// Lowers a node with input kResidualInput by its row, whose kernels read that as they store. It is copied where it does not lie as the
// output; where the row's own result is of another shape, the expression becomes a map over both.
void lower_residual(LowerContext& node);

// Lowers the node with its floats of 16 and 32 bits kept as `inside`: inputs that are described otherwise are converted to scratch memory
// first, outputs last, but for those that the row reads or makes as float32 too.
void lower_inside(LowerContext& node, DType inside);

// Lowers the node by its row. Strided tensors that the row's kernels do not take are copied before and after.
void lower_strided(LowerContext& node);

}  // namespace pumice

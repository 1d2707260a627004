// Lowers an operator to steps of other operators, with intermediates in scratch memory.
#pragma once

#include "operators/table/operator_table.h"

namespace pumice {

// A tensor of a composite lowering: its description and operand.
struct TensorOperand {
  TensorDesc desc;
  Operand operand;
  bool is_packed = false;  // already in its consumer's packed layout

  TensorOperand reshaped(Shape shape) const;  // a row-major view with another shape
};

class CompositeLowering {
 public:
  explicit CompositeLowering(LowerContext& node) : node_(node) {}
  TensorOperand input(size_t i) const;   // throws UnsupportedError if the tensor is strided
  TensorOperand output(size_t i) const;  // throws UnsupportedError if the tensor is strided
  TensorOperand scratch(DType dtype, Shape shape);
  // Adds the steps of another operator. `last`: apply the node's epilogue to these steps.
  void add(std::string_view op, const Attributes& attributes, const std::vector<TensorOperand>& inputs, const TensorOperand& output,
           bool last = false);
  // `epilogue`: GLSL over x that is fused into these steps.
  void add(std::string_view op, const Attributes& attributes, const std::vector<TensorOperand>& inputs, const TensorOperand& output,
           const std::string& epilogue);
  // Adds an elementwise step over the broadcast inputs, named a0, a1, .. in the expression.
  void map(std::string_view expression, const std::vector<TensorOperand>& inputs, const TensorOperand& output, bool last = false);
  void map(const Expression& expression, const std::vector<TensorOperand>& inputs, const TensorOperand& output, bool last = false);
  // Adds a reduction to float32 that keeps the reduced axes with size 1.
  TensorOperand reduce(std::string_view op, const TensorOperand& x, const std::vector<int64_t>& axes);

 private:
  void lower_operator(const OperatorRow& row, const Attributes& attributes, const std::vector<TensorOperand>& inputs,
                      const TensorOperand& output, const Expression* expression, const std::string& epilogue);
  TensorOperand require_packed(const TensorDesc& desc, Operand operand) const;

  LowerContext& node_;
};

// Appends the steps of `inner`, a lowered part of the node. `inputs`, `outputs`: operands of `node` for the inputs and outputs of `inner`.
void append_steps(LowerContext& node, LowerContext& inner, const std::vector<Operand>& inputs, const std::vector<Operand>& outputs);

// Lowers a node with input kResidualInput, which the operator's kernels read in their epilogue. The residual is copied if its layout
// differs from the output's. If the operator's result has another shape, a separate elementwise kernel applies the expression.
void lower_with_residual(LowerContext& node);

// Lowers the node with its 16-bit and 32-bit floats stored as `compute_dtype`. Inputs with another float dtype are first converted to
// scratch memory, and outputs are converted last, except those that the operator also supports as float32.
void lower_in_dtype(LowerContext& node, DType compute_dtype);

// Lowers the node with its operator's function. Copies strided tensors before and after if the operator's kernels do not support them.
void lower_strided(LowerContext& node);

}  // namespace pumice

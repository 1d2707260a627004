// Lowers an operator to a sequence of other operators, with intermediate tensors in scratch memory.
#pragma once

#include "operators/table/operator_table.h"

namespace pumice {

// A tensor of a composite lowering: its description and its memory.
struct TensorOperand {
  TensorDesc desc;
  Operand operand;
  bool is_packed = false;  // already in the packed weight layout that its consumer reads

  TensorOperand reshaped(Shape shape) const;  // a row-major view with another shape
};

class CompositeLowering {
 public:
  explicit CompositeLowering(LowerContext& node) : node_(node) {}
  TensorOperand input(size_t i) const;   // throws UnsupportedError if the tensor is strided
  TensorOperand output(size_t i) const;  // throws UnsupportedError if the tensor is strided
  TensorOperand allocate_scratch(DType dtype, Shape shape);
  // Adds the steps of operator `op`. `last`: fuse the node's epilogue into these steps.
  void add_operator(std::string_view op, const Attributes& attributes, const std::vector<TensorOperand>& inputs,
                    const TensorOperand& output, bool last = false);
  // Adds the steps of operator `op` with a fused `epilogue`, a GLSL expression of x.
  void add_operator(std::string_view op, const Attributes& attributes, const std::vector<TensorOperand>& inputs,
                    const TensorOperand& output, const std::string& epilogue);
  // Adds an elementwise step over the broadcast inputs, named a0, a1, .. in the expression.
  void add_elementwise(std::string_view expression, const std::vector<TensorOperand>& inputs, const TensorOperand& output,
                       bool last = false);
  void add_elementwise(const Expression& expression, const std::vector<TensorOperand>& inputs, const TensorOperand& output,
                       bool last = false);
  // Adds a reduction of x by operator `op`. Returns its float32 result, which keeps the reduced axes with size 1.
  TensorOperand add_reduction(std::string_view op, const TensorOperand& x, const std::vector<int64_t>& axes);

 private:
  void lower_operator(const OperatorRow& row, const Attributes& attributes, const std::vector<TensorOperand>& inputs,
                      const TensorOperand& output, const Expression* expression, const std::string& epilogue);
  TensorOperand require_packed(const TensorDesc& desc, Operand operand) const;

  LowerContext& node_;
};

// Appends the steps of `inner`, which lowers a part of `node`. `inputs` and `outputs` are the operands of `node` that replace
// `inner`'s operands.
void append_inner_steps(LowerContext& node, LowerContext& inner, const std::vector<Operand>& inputs, const std::vector<Operand>& outputs);

// Lowers a node with a residual (input kResidualInput), which the operator's kernels read in their epilogue. The residual is copied if its
// layout differs from the output's. If the operator's result has another shape than the output, an elementwise kernel applies the epilogue.
void lower_with_residual(LowerContext& node);

// Lowers the node with its 16-bit and 32-bit floats stored as `compute_dtype`. Inputs with another float dtype are first converted to
// scratch memory, and outputs are converted last. Tensors that the operator also supports as float32 are not converted.
void lower_in_dtype(LowerContext& node, DType compute_dtype);

// Lowers the node with OperatorRow::lower. If the operator's kernels do not support strided tensors, these are copied to and from packed
// scratch memory.
void lower_strided(LowerContext& node);

}  // namespace pumice

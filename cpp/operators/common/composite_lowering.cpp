#include "operators/common/composite_lowering.h"

#include "core/error.h"
#include "operators/common/split_node.h"
#include "operators/common/strided_copy.h"
#include "operators/table/precision_support.h"
#include "operators/table/result_dtype.h"
#include "operators/table/value_layout.h"

namespace pumice {
namespace {

constexpr uint64_t kAlignment = 16;  // alignment, in bytes, that LowerContext::input_misalignment refers to
const std::string kNoEpilogue = "x";

}  // namespace

void append_inner_steps(LowerContext& node, LowerContext& inner, const std::vector<Operand>& inputs, const std::vector<Operand>& outputs) {
  std::vector<Operand> temporaries, blocks;
  for (const uint64_t bytes : inner.temporaries) temporaries.push_back(node.add_temporary(bytes));
  for (auto& block : inner.host_blocks) blocks.push_back(node.add_host_block(std::move(block)));
  const auto target = [&](const Operand& operand) {
    switch (operand.memory) {
      case MemoryKind::input:
        return inputs.at(operand.index);
      case MemoryKind::output:
        return outputs.at(operand.index);
      case MemoryKind::host:
        return blocks.at(operand.index);
      default:
        return temporaries.at(operand.index);
    }
  };
  for (Step& step : inner.steps) {
    for (Operand& operand : step.operands) {
      if (operand.memory == MemoryKind::none) continue;
      Operand resolved = target(operand);
      resolved.byte_offset += operand.byte_offset;
      resolved.bytes = operand.bytes;
      if (resolved.element_bits == 0) resolved.element_bits = operand.element_bits;
      operand = resolved;
    }
    node.add(std::move(step));
  }
}

TensorOperand TensorOperand::reshaped(Shape shape) const {
  return {TensorDesc(desc.dtype, std::move(shape)), operand};
}

TensorOperand CompositeLowering::require_packed(const TensorDesc& desc, Operand operand) const {
  if (desc.is_packed()) return {desc, operand};
  throw UnsupportedError("node '" + std::string(node_.node) + "': " + std::string(node_.row->name) + " of a strided tensor, " +
                         to_string(desc));
}

TensorOperand CompositeLowering::input(size_t i) const {
  return require_packed(node_.input(i), node_.input_operand(i));
}

TensorOperand CompositeLowering::output(size_t i) const {
  return require_packed(node_.output(i), node_.output_operand(i));
}

TensorOperand CompositeLowering::allocate_scratch(DType dtype, Shape shape) {
  TensorDesc desc(dtype, std::move(shape));
  Operand operand = node_.add_temporary(desc.bytes());
  operand.element_bits = static_cast<uint32_t>(bits(desc.dtype));
  return {std::move(desc), operand};
}

void CompositeLowering::add_operator(std::string_view op, const Attributes& attributes, const std::vector<TensorOperand>& inputs,
                                     const TensorOperand& output, bool last) {
  add_operator(op, attributes, inputs, output, last ? node_.epilogue() : kNoEpilogue);
}

void CompositeLowering::add_operator(std::string_view op, const Attributes& attributes, const std::vector<TensorOperand>& inputs,
                                     const TensorOperand& output, const std::string& epilogue) {
  const OperatorRow& row = *find_operator(op);
  lower_operator(row, validate_attributes(row, node_.node, attributes), inputs, output, nullptr, epilogue);
}

void CompositeLowering::add_elementwise(std::string_view expression, const std::vector<TensorOperand>& inputs, const TensorOperand& output,
                                        bool last) {
  add_elementwise(Expression::parse(expression), inputs, output, last);
}

void CompositeLowering::add_elementwise(const Expression& expression, const std::vector<TensorOperand>& inputs, const TensorOperand& output,
                                        bool last) {
  lower_operator(*find_operator("Sum"), {}, inputs, output, &expression, last ? node_.epilogue() : kNoEpilogue);
}

TensorOperand CompositeLowering::add_reduction(std::string_view op, const TensorOperand& x, const std::vector<int64_t>& axes) {
  Shape shape = x.desc.shape;
  for (const int64_t axis : axes) shape[static_cast<size_t>(axis)] = 1;
  const TensorOperand y = allocate_scratch(DType::float32, shape);
  Attributes attributes;
  attributes.set("axes", axes);
  add_operator(op, attributes, {x}, y);
  return y;
}

void CompositeLowering::lower_operator(const OperatorRow& row, const Attributes& attributes, const std::vector<TensorOperand>& inputs,
                                       const TensorOperand& output, const Expression* expression, const std::string& epilogue) {
  LowerContext inner;
  static_cast<NodeContext&>(inner) = node_;
  inner.attributes = &attributes;
  inner.row = &row;
  inner.expression = expression;
  inner.float_dtype = is_float(output.desc.dtype) ? output.desc.dtype : inputs[0].desc.dtype;
  for (const TensorOperand& input : inputs) {
    inner.inputs.emplace_back(input.desc);
    const uint64_t misalignment = input.operand.memory == MemoryKind::input ? node_.input_misalignment(input.operand.index) : 0;
    inner.input_misalignments.push_back((misalignment + input.operand.byte_offset) % kAlignment);
    inner.constant_packed.push_back(input.is_packed);
  }
  inner.outputs.emplace_back(output.desc);
  inner.hosts.resize(inputs.size());
  inner.epilogue_source = epilogue, inner.exact_epilogue = node_.exact_epilogue;
  lower_operator_row(inner);
  std::vector<Operand> sources;
  for (const TensorOperand& input : inputs) sources.push_back(input.operand);
  append_inner_steps(node_, inner, sources, {output.operand});
}

namespace {

Shape infer_unfused_shape(const LowerContext& node) {
  std::vector<const TensorDesc*> inputs;
  for (size_t i = 0; i < kResidualInput; ++i) inputs.push_back(node.has_input(i) ? &node.input(i) : nullptr);
  ShapeContext context(node.node, *node.attributes, std::move(inputs), {node.hosts.begin(), node.hosts.begin() + kResidualInput}, 1);
  infer_outputs(*node.row, context);
  return context.take_outputs()[0]->shape;
}

// Lowers the operator without its fused epilogue, into scratch memory. An elementwise kernel then applies the epilogue to the result and
// the residual.
void lower_unfused(LowerContext& node, Shape shape) {
  LowerContext inner = node;
  inner.epilogue_source = "x";
  inner.expression = nullptr;
  // In an fp32 node, the result stays fp32 until the elementwise kernel rounds it to a 16-bit output dtype.
  const DType dtype = node.float_dtype == DType::float32 ? DType::float32 : node.output(0).dtype;
  const TensorOperand unfused = CompositeLowering(node).allocate_scratch(dtype, std::move(shape));
  inner.outputs[0] = unfused.desc;
  lower_operator_row(inner);
  std::vector<Operand> inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) inputs.push_back(node.input_operand(i));
  append_inner_steps(node, inner, inputs, {unfused.operand});
  node.additions = inner.additions;
  const Expression epilogue = node.expression->substitute({{"x", Expression::name("a0")}, {"residual", Expression::name("a1")}});
  CompositeLowering(node).add_elementwise(epilogue, {unfused, {node.input(kResidualInput), node.input_operand(kResidualInput)}},
                                          {node.output(0), node.output_operand(0)});
  node.epilogue_read = node.residual_read = true;
}

}  // namespace

void lower_with_residual(LowerContext& node) {
  const TensorDesc &residual = node.input(kResidualInput), &y = node.output(0);
  if (Shape shape = infer_unfused_shape(node); shape != y.shape) return lower_unfused(node, std::move(shape));
  node.residual_operand = node.input_operand(kResidualInput);
  if (residual.shape != y.shape || residual.strides != y.strides || node.input_misalignment(kResidualInput) != 0) {
    const Operand copy = node.add_temporary(buffer_size(residual.dtype, y.shape, &y.strides));
    add_strided_copy(node, residual.dtype, {y.shape, {compute_broadcast_strides(residual.shape, residual.strides, y.shape), y.strides}},
                     {node.input_operand(kResidualInput)}, {copy});
    node.residual_operand = copy;
  }
  node.row->lower(node);
}

void lower_strided(LowerContext& node) {
  LowerContext inner = node;
  std::vector<Operand> inputs, outputs;
  bool copies = false;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    inputs.push_back(node.input_operand(i));
    const bool is_read = node.has_input(i) && !node.host_tensor(i) && !(i < node.constant_packed.size() && node.constant_packed[i]);
    if (!is_read || node.input(i).is_packed() || accepts_strided_input(*node.row, i)) continue;
    inputs[i] = get_contiguous_input(node, i);
    inner.inputs[i] = node.input(i).packed();
    if (i < inner.input_misalignments.size()) inner.input_misalignments[i] = 0;
    copies = true;
  }
  for (size_t j = 0; j < node.outputs.size(); ++j) {
    outputs.push_back(node.output_operand(j));
    if (!node.has_output(j) || node.output(j).is_packed() || writes_strided_output(*node.row, j)) continue;
    outputs[j] = get_contiguous_output(node, j);
    inner.outputs[j] = node.output(j).packed();
    copies = true;
  }
  if (!copies) return lower_operator_row(node);
  lower_operator_row(inner);
  node.epilogue_read = inner.epilogue_read;
  append_inner_steps(node, inner, inputs, outputs);
  node.additions = inner.additions;
  for (size_t j = 0; j < outputs.size(); ++j)
    if (outputs[j].memory != MemoryKind::output) copy_contiguous_output(node, j, outputs[j]);
}

void lower_in_dtype(LowerContext& node, DType compute_dtype) {
  LowerContext inner = node;
  inner.float_dtype = compute_dtype;
  CompositeLowering composition(node);
  std::vector<Operand> inputs, outputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    inputs.push_back(node.input_operand(i));
    const bool is_read = node.has_input(i) && !node.host_tensor(i) && !(i < node.constant_packed.size() && node.constant_packed[i]);
    if (!is_read || !is_operator_float(node.input(i).dtype) || node.input(i).dtype == compute_dtype) continue;
    if (node.input(i).dtype == DType::float32 && has_bit(node.row->precision.fp32_inputs, i)) continue;
    if (compute_dtype == DType::float32 && has_bit(node.row->precision.half_inputs, i)) continue;  // no kernel mixes fp16 and bf16
    const TensorOperand converted = composition.allocate_scratch(compute_dtype, node.input(i).shape);
    composition.add_elementwise("a0", {{node.input(i), node.input_operand(i)}}, converted);
    inputs[i] = converted.operand;
    inner.inputs[i] = converted.desc;
    if (i < inner.input_misalignments.size()) inner.input_misalignments[i] = 0;
  }
  const DType result_dtype = get_result_float_dtype(*node.row, compute_dtype);
  for (size_t j = 0; j < node.outputs.size(); ++j) {
    outputs.push_back(node.output_operand(j));
    if (!node.has_output(j) || !is_operator_float(node.output(j).dtype) || node.output(j).dtype == result_dtype) continue;
    if (node.output(j).dtype == DType::float32 && has_bit(node.row->precision.fp32_outputs, j)) continue;
    const TensorOperand converted = composition.allocate_scratch(result_dtype, node.output(j).shape);
    outputs[j] = converted.operand;
    inner.outputs[j] = converted.desc;
  }
  lower_strided(inner);
  append_inner_steps(node, inner, inputs, outputs);
  node.additions = inner.additions;
  node.epilogue_read = inner.epilogue_read;
  for (size_t j = 0; j < outputs.size(); ++j)
    if (outputs[j].memory != MemoryKind::output)
      composition.add_elementwise("a0", {{*inner.outputs[j], outputs[j]}}, {node.output(j), node.output_operand(j)});
}

}  // namespace pumice

#include "operators/common/composition.h"

#include "core/error.h"
#include "operators/common/split_node.h"
#include "operators/common/strided_copy.h"
#include "operators/table/layout.h"
#include "operators/table/precision.h"
#include "operators/table/result_dtype.h"

namespace pumice {
namespace {

constexpr uint64_t kPhaseBytes = 16;  // modulus of LowerContext::input_phase
const std::string kNoEpilogue = "x";

}  // namespace

void adopt(LowerContext& node, LowerContext& part, const std::vector<Operand>& inputs, const std::vector<Operand>& outputs) {
  std::vector<Operand> temporaries, blocks;
  for (const uint64_t bytes : part.temporaries) temporaries.push_back(node.temporary(bytes));
  for (auto& block : part.host_blocks) blocks.push_back(node.host_block(std::move(block)));
  const auto target = [&](const Operand& operand) {
    switch (operand.place) {
      case Place::input:
        return inputs.at(operand.index);
      case Place::output:
        return outputs.at(operand.index);
      case Place::host:
        return blocks.at(operand.index);
      default:
        return temporaries.at(operand.index);
    }
  };
  for (Step& step : part.steps) {
    for (Operand& operand : step.operands) {
      if (operand.place == Place::none) continue;
      Operand found = target(operand);
      found.byte_offset += operand.byte_offset;
      found.bytes = operand.bytes;
      if (found.element_bits == 0) found.element_bits = operand.element_bits;
      operand = found;
    }
    node.add(std::move(step));
  }
}

Piece Piece::seen_as(Shape shape) const {
  return {TensorDesc(desc.dtype, std::move(shape)), operand};
}

Piece Composition::packed(const TensorDesc& desc, Operand operand) const {
  if (desc.is_packed()) return {desc, operand};
  throw UnsupportedError("node '" + std::string(node_.node) + "': " + std::string(node_.row->name) + " of a strided tensor, " +
                         to_string(desc));
}

Piece Composition::input(size_t i) const {
  return packed(node_.input(i), node_.in(i));
}

Piece Composition::output(size_t i) const {
  return packed(node_.output(i), node_.out(i));
}

Piece Composition::scratch(DType dtype, Shape shape) {
  TensorDesc desc(dtype, std::move(shape));
  Operand operand = node_.temporary(desc.bytes());
  operand.element_bits = static_cast<uint32_t>(bits(desc.dtype));
  return {std::move(desc), operand};
}

void Composition::add(std::string_view op, const Attributes& attributes, const std::vector<Piece>& inputs, const Piece& output, bool last) {
  add(op, attributes, inputs, output, last ? node_.epilogue() : kNoEpilogue);
}

void Composition::add(std::string_view op, const Attributes& attributes, const std::vector<Piece>& inputs, const Piece& output,
                      const std::string& epilogue) {
  const OperatorRow& row = *find_operator(op);
  run(row, checked_attributes(row, node_.node, attributes), inputs, output, nullptr, epilogue);
}

void Composition::map(std::string_view expression, const std::vector<Piece>& inputs, const Piece& output, bool last) {
  map(Expression::parse(expression), inputs, output, last);
}

void Composition::map(const Expression& expression, const std::vector<Piece>& inputs, const Piece& output, bool last) {
  run(*find_operator("Sum"), {}, inputs, output, &expression, last ? node_.epilogue() : kNoEpilogue);
}

Piece Composition::reduce(std::string_view op, const Piece& x, const std::vector<int64_t>& axes) {
  Shape shape = x.desc.shape;
  for (const int64_t axis : axes) shape[static_cast<size_t>(axis)] = 1;
  const Piece y = scratch(DType::float32, shape);
  Attributes attributes;
  attributes.set("axes", axes);
  add(op, attributes, {x}, y);
  return y;
}

void Composition::run(const OperatorRow& row, const Attributes& attributes, const std::vector<Piece>& inputs, const Piece& output,
                      const Expression* expression, const std::string& epilogue) {
  LowerContext part;
  static_cast<NodeContext&>(part) = node_;
  part.attributes = &attributes;
  part.row = &row;
  part.expression = expression;
  part.float_dtype = is_float(output.desc.dtype) ? output.desc.dtype : inputs[0].desc.dtype;
  for (const Piece& piece : inputs) {
    part.inputs.emplace_back(piece.desc);
    const uint64_t phase = piece.operand.place == Place::input ? node_.input_phase(piece.operand.index) : 0;
    part.input_phases.push_back((phase + piece.operand.byte_offset) % kPhaseBytes);
    part.constant_packed.push_back(piece.is_packed);
  }
  part.outputs.emplace_back(output.desc);
  part.hosts.resize(inputs.size());
  part.epilogue_text = epilogue, part.exact_epilogue = node_.exact_epilogue;
  lower_row(part);
  std::vector<Operand> sources;
  for (const Piece& piece : inputs) sources.push_back(piece.operand);
  adopt(node_, part, sources, {output.operand});
}

namespace {

Shape own_shape(const LowerContext& node) {
  std::vector<const TensorDesc*> inputs;
  for (size_t i = 0; i < kResidualInput; ++i) inputs.push_back(node.has_input(i) ? &node.input(i) : nullptr);
  ShapeContext context(node.node, *node.attributes, std::move(inputs), {node.hosts.begin(), node.hosts.begin() + kResidualInput}, 1);
  find_outputs(*node.row, context);
  return context.take_outputs()[0]->shape;
}

// Lowers the operator without its fused epilogue, into scratch memory; an elementwise kernel then combines the result with the residual.
void lower_apart(LowerContext& node, Shape shape) {
  LowerContext part = node;
  part.epilogue_text = "x";
  part.expression = nullptr;
  // An fp32 node keeps fp32 until the elementwise kernel rounds its result to 16 bits.
  const DType dtype = node.float_dtype == DType::float32 ? DType::float32 : node.output(0).dtype;
  const Piece made = Composition(node).scratch(dtype, std::move(shape));
  part.outputs[0] = made.desc;
  lower_row(part);
  std::vector<Operand> inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) inputs.push_back(node.in(i));
  adopt(node, part, inputs, {made.operand});
  node.additions = part.additions;
  const Expression whole = node.expression->substitute({{"x", Expression::name("a0")}, {"residual", Expression::name("a1")}});
  Composition(node).map(whole, {made, {node.input(kResidualInput), node.in(kResidualInput)}}, {node.output(0), node.out(0)});
  node.epilogue_read = node.residual_read = true;
}

}  // namespace

void lower_residual(LowerContext& node) {
  const TensorDesc &residual = node.input(kResidualInput), &y = node.output(0);
  if (Shape shape = own_shape(node); shape != y.shape) return lower_apart(node, std::move(shape));
  node.residual_operand = node.in(kResidualInput);
  if (residual.shape != y.shape || residual.strides != y.strides || node.input_phase(kResidualInput) != 0) {
    const Operand copy = node.temporary(buffer_size(residual.dtype, y.shape, &y.strides));
    add_strided_copy(node, residual.dtype, {y.shape, {broadcast_strides(residual.shape, residual.strides, y.shape), y.strides}},
                     {node.in(kResidualInput)}, {copy});
    node.residual_operand = copy;
  }
  node.row->lower(node);
}

void lower_strided(LowerContext& node) {
  LowerContext part = node;
  std::vector<Operand> inputs, outputs;
  bool copies = false;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    inputs.push_back(node.in(i));
    const bool is_read = node.has_input(i) && !node.host(i) && !(i < node.constant_packed.size() && node.constant_packed[i]);
    if (!is_read || node.input(i).is_packed() || takes_strides(*node.row, i)) continue;
    inputs[i] = dense_input(node, i);
    part.inputs[i] = node.input(i).packed();
    if (i < part.input_phases.size()) part.input_phases[i] = 0;
    copies = true;
  }
  for (size_t j = 0; j < node.outputs.size(); ++j) {
    outputs.push_back(node.out(j));
    if (!node.has_output(j) || node.output(j).is_packed() || makes_strides(*node.row, j)) continue;
    outputs[j] = dense_output(node, j);
    part.outputs[j] = node.output(j).packed();
    copies = true;
  }
  if (!copies) return lower_row(node);
  lower_row(part);
  node.epilogue_read = part.epilogue_read;
  adopt(node, part, inputs, outputs);
  node.additions = part.additions;
  for (size_t j = 0; j < outputs.size(); ++j)
    if (outputs[j].place != Place::output) finish_output(node, j, outputs[j]);
}

void lower_inside(LowerContext& node, DType inside) {
  LowerContext part = node;
  part.float_dtype = inside;
  Composition composition(node);
  std::vector<Operand> inputs, outputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    inputs.push_back(node.in(i));
    const bool is_read = node.has_input(i) && !node.host(i) && !(i < node.constant_packed.size() && node.constant_packed[i]);
    if (!is_read || !is_working_float(node.input(i).dtype) || node.input(i).dtype == inside) continue;
    if (node.input(i).dtype == DType::float32 && has_bit(node.row->wide_inputs, i)) continue;
    if (inside == DType::float32 && has_bit(node.row->narrow_inputs, i)) continue;  // two 16-bit float types do not mix
    const Piece converted = composition.scratch(inside, node.input(i).shape);
    composition.map("a0", {{node.input(i), node.in(i)}}, converted);
    inputs[i] = converted.operand;
    part.inputs[i] = converted.desc;
    if (i < part.input_phases.size()) part.input_phases[i] = 0;
  }
  const DType made = float_made_of(*node.row, inside);
  for (size_t j = 0; j < node.outputs.size(); ++j) {
    outputs.push_back(node.out(j));
    if (!node.has_output(j) || !is_working_float(node.output(j).dtype) || node.output(j).dtype == made) continue;
    if (node.output(j).dtype == DType::float32 && has_bit(node.row->wide_outputs, j)) continue;
    const Piece converted = composition.scratch(made, node.output(j).shape);
    outputs[j] = converted.operand;
    part.outputs[j] = converted.desc;
  }
  lower_strided(part);
  adopt(node, part, inputs, outputs);
  node.additions = part.additions;
  node.epilogue_read = part.epilogue_read;
  for (size_t j = 0; j < outputs.size(); ++j)
    if (outputs[j].place != Place::output) composition.map("a0", {{*part.outputs[j], outputs[j]}}, {node.output(j), node.out(j)});
}

}  // namespace pumice

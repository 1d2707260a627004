#include "operators/compose.h"

#include "core/error.h"

namespace pumice {

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
  const uint64_t bytes = desc.bytes();
  return {std::move(desc), node_.temporary(bytes)};
}

void Composition::add(std::string_view op, const Attributes& attributes, const std::vector<Piece>& inputs, const Piece& output, bool last) {
  const OperatorRow& row = *find_operator(op);
  run(row, checked_attributes(row, node_.node, attributes), inputs, output, nullptr, last);
}

void Composition::map(std::string_view expression, const std::vector<Piece>& inputs, const Piece& output, bool last) {
  map(Expression::parse(expression), inputs, output, last);
}

void Composition::map(const Expression& expression, const std::vector<Piece>& inputs, const Piece& output, bool last) {
  run(*find_operator("Sum"), {}, inputs, output, &expression, last);
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
                      const Expression* expression, bool last) {
  LowerContext part;
  static_cast<NodeContext&>(part) = node_;
  part.attributes = &attributes;
  part.row = &row;
  part.expression = expression;
  part.float_dtype = is_float(output.desc.dtype) ? output.desc.dtype : inputs[0].desc.dtype;
  for (const Piece& piece : inputs) {
    part.inputs.emplace_back(piece.desc);
    part.input_phases.push_back(piece.operand.place == Place::input ? node_.input_phase(piece.operand.index) : 0);
  }
  part.outputs.emplace_back(output.desc);
  part.hosts.resize(inputs.size());
  if (last) part.epilogue_text = node_.epilogue();
  row.lower(part);
  std::vector<Operand> temporaries;
  for (const uint64_t bytes : part.temporaries) temporaries.push_back(node_.temporary(bytes));
  for (Step& step : part.steps) {
    for (Operand& operand : step.operands) {
      if (operand.place == Place::none) continue;
      Operand target = operand.place == Place::input    ? inputs.at(operand.index).operand
                       : operand.place == Place::output ? output.operand
                                                        : temporaries.at(operand.index);
      target.byte_offset += operand.byte_offset;
      operand = target;
    }
    node_.add(std::move(step));
  }
}

}  // namespace pumice

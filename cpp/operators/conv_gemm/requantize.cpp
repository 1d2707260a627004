#include "operators/conv_gemm/requantize.h"

#include "operators/common/strided_copy.h"
#include "operators/conv_gemm/conv_gemm_dispatch.h"

namespace pumice {

std::optional<Strides> compute_quant_param_strides(const TensorDesc& quantities, const Shape& matrices, bool columns) {
  if (quantities.elements() == 1) return Strides(matrices.size(), 0);
  Shape shape = quantities.shape;
  if (shape.size() == 1 && !columns) shape.push_back(1);
  if (shape.size() > matrices.size()) return {};
  const size_t offset = matrices.size() - shape.size(), across = shape.size() - (columns ? 2 : 1);
  for (size_t i = 0; i < shape.size(); ++i)
    if (shape[i] != 1 && (i == across || shape[i] != matrices[offset + i])) return {};
  return compute_broadcast_strides(shape, packed_strides(shape), matrices);
}

bool pack_requantize_params(const PackContext& node, size_t input, PackedWeight& packed) {
  if (input == 1 || input == 4 || input == 6)
    pack_as_float32(node, input, 1, packed);
  else if (input == 7)
    pack_as_int32(node, input, node.input(input).elements(), packed);
  else
    return false;
  return true;
}

void add_requantize(LowerContext& node, const Operand& sums, const Shape& shape, const Strides& a, const Strides& b, const Strides& y) {
  constexpr int64_t kLanes = 4;
  const int64_t elements = element_count(shape);
  if (elements == 0) return;
  IndexSpace space{shape, {a, b, y}};
  space.coalesce();
  space.pad_to(4, "node '" + std::string(node.node) + "'");
  const bool is_signed = is_signed_integer(node.output(0).dtype);
  StepBuilder step(node.kernel("requantize.comp", DType::int32));
  step.bind("x", sums)
      .bind("a_scale", node.get_packed_input(1))
      .bind("b_scale", node.get_packed_input(4))
      .bind("y_scale", node.get_packed_input(6));
  step.bind("y_zero", node.get_packed_input(7)).bind("y", node.output_operand(0));
  step.set("elements", elements).set("size", space.sizes);
  step.set("a_stride", space.strides[0]).set("b_stride", space.strides[1]).set("y_stride", space.strides[2]);
  step.set("lowest", is_signed ? -128 : 0).set("highest", is_signed ? 127 : 255);
  node.add(step.set_threads(static_cast<uint64_t>((elements + kLanes - 1) / kLanes)).build());
}

}  // namespace pumice

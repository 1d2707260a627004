// Operator rows of QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear.
#include "core/error.h"
#include "operators/common/split_axes.h"
#include "operators/quantize/lowerings.h"
#include "operators/table/onnx_dtype.h"
#include "operators/table/row_builders.h"

namespace pumice {
namespace {

constexpr DTypeSet kQuantized =
    make_dtype_set(DType::int8, DType::uint8, DType::int16, DType::uint16) | (kLowBit & ~make_dtype_set(DType::float8_e8m0fnu));
constexpr DTypeSet kDequantized = kQuantized | make_dtype_set(DType::int32);

// Checks scale and zero point: they are scalars, or have one value per index of the axis or per block of `block_size` indices.
void check_scales(const ShapeContext& node) {
  const Shape &x = node.input(0).shape, &scale = node.input(1).shape;
  const int64_t block = node.attributes().integer("block_size", 0);
  Shape expected = scale;
  if (block != 0 || element_count(scale) != 1) {
    const size_t axis = normalize_axis(node, node.attributes().integer("axis", 1), x.size());
    expected = {x[axis]};
    if (block < 0) node.fail("expected a non-negative 'block_size'; given " + std::to_string(block));
    if (block > 0) {
      expected = x;
      expected[axis] = (x[axis] + block - 1) / block;
    }
  }
  if (scale != expected) node.fail("expected scale of shape " + to_string(expected) + "; given " + to_string(scale));
  if (node.has(2) && element_count(node.input(2).shape) != element_count(scale))
    node.fail("expected zero points of shape " + to_string(scale) + ", as the scale; given " + to_string(node.input(2).shape));
}

// Returns the dtype in attribute 'output_dtype'; nullopt if the attribute is 0.
std::optional<DType> get_declared_dtype(const ShapeContext& node) {
  const int64_t number = node.attributes().integer("output_dtype", 0);
  if (number == 0) return {};
  if (const auto dtype = from_onnx_dtype(number)) return dtype;
  throw UnsupportedError("node '" + std::string(node.node()) + "': results of ONNX element type " + std::to_string(number));
}

void infer_quantize_shape(ShapeContext& node) {
  check_scales(node);
  const auto declared = get_declared_dtype(node);
  const DType dtype = node.has(2) ? node.input(2).dtype : declared.value_or(DType::uint8);
  if (declared && *declared != dtype)
    node.fail("'output_dtype' is " + std::string(name(*declared)) + " and the zero point is " + std::string(name(dtype)));
  if (!contains(kQuantized, dtype))
    throw UnsupportedError("node '" + std::string(node.node()) + "': QuantizeLinear to " + std::string(name(dtype)) + "; it can be " +
                           join_dtype_names(kQuantized));
  node.output(0, dtype, node.input(0).shape);
}

void infer_dequantize_shape(ShapeContext& node) {
  check_scales(node);
  const DType dtype = get_declared_dtype(node).value_or(node.input(1).dtype);
  if (!contains(kFloats, dtype))
    throw UnsupportedError("node '" + std::string(node.node()) + "': DequantizeLinear to " + std::string(name(dtype)) + "; it can be " +
                           join_dtype_names(kFloats));
  node.output(0, dtype, node.input(0).shape);
}

void infer_dynamic_quantize_shape(ShapeContext& node) {
  node.output(0, DType::uint8, node.input(0).shape);
  node.output(1, DType::float32, {});
  node.output(2, DType::uint8, {});
}

// Quantisation can be split along all axes. Scale and zero point are split with their axis, in whole blocks.
void append_quantize_split_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const TensorDesc& x = node.input(kData);
  const bool is_scalar = node.input(1).elements() == 1, blocks = node.attributes->integer("block_size", 0) != 0;
  const int along = normalize_axis(node.attributes->integer("axis", 1), x.rank());
  append_axes_except(node, axes, [&](int axis) { return blocks && axis == along; });
  for (SplitAxis& split : axes)
    for (size_t i = 1; i < node.inputs.size() && !is_scalar; ++i) {
      if (!node.has_input(i)) continue;
      if (blocks) split.inputs[i] = split.inputs[kData];
      if (!blocks && split.inputs[kData] == along) split.inputs[i] = 0;
    }
}

// Returns the attributes that QuantizeLinear and DequantizeLinear share.
std::vector<AttributeSchema> make_linear_quantization_attributes() {
  return {integer_attribute("axis", 1), integer_attribute("block_size", 0), integer_attribute("output_dtype", 0)};
}

std::vector<AttributeSchema> make_quantize_attributes() {
  auto attributes = make_linear_quantization_attributes();
  attributes.push_back(integer_attribute("saturate", 1));
  attributes.push_back({"precision", AttributeKind::integer, int64_t{0}, false, {int64_t{0}, int64_t{1}}});
  return attributes;
}

}  // namespace

OperatorRows define_quantize_operators() {
  return {
      {.name = "QuantizeLinear",
       .skeleton = KernelKind::map,
       .schema = {.inputs = {value_role("x", kFloats | make_dtype_set(DType::int32)), value_role("scale", kFloats),
                             optional_role("zero", kQuantized)},
                  .outputs = {value_role("y", kQuantized)},
                  .attributes = make_quantize_attributes()},
       .shape = infer_quantize_shape,
       .lower = lower_quantize,
       .form = kQuantize,
       .scaled_expression = "round_even(divide(f32(x), s)) + zero",
       .pack = pack_quantize,
       .strides = StrideSupport::packed,
       .split = append_quantize_split_axes},
      {.name = "DequantizeLinear",
       .skeleton = KernelKind::map,
       .schema = {.inputs = {value_role("x", kDequantized, 'T'), value_role("scale", kFloats), optional_role("zero", kDequantized, 'T')},
                  .outputs = {value_role("y", kFloats)},
                  .attributes = make_linear_quantization_attributes()},
       .shape = infer_dequantize_shape,
       .lower = lower_quantize,
       .form = kDequantize,
       .scaled_expression = "f32(i32(x) - zero) * s",
       .pack = pack_quantize,
       .strides = StrideSupport::packed,
       .split = append_quantize_split_axes},
      {.name = "DynamicQuantizeLinear",
       .skeleton = KernelKind::map,
       .schema = {.inputs = {value_role("x", kFloats)},
                  .outputs = {value_role("y", make_dtype_set(DType::uint8)), value_role("y_scale", kFloats),
                              value_role("y_zero_point", make_dtype_set(DType::uint8))}},
       .shape = infer_dynamic_quantize_shape,
       .lower = lower_dynamic_quantize,
       .strides = StrideSupport::packed,
       .precision = {.overflows = true, .mixed_precision = true}}};
}

}  // namespace pumice

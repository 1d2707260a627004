// Operator rows for convolutions, GEMM and determinants.
#include "operators/conv_gemm/conv_gemm_operators.h"

#include "core/error.h"
#include "operators/common/split_axes.h"
#include "operators/conv_gemm/einsum.h"
#include "operators/conv_gemm/lowerings.h"
#include "operators/conv_gemm/quant_gemm.h"
#include "operators/conv_gemm/requantize.h"
#include "operators/geometry/window_geometry.h"
#include "operators/table/flop.h"
#include "operators/table/row_builders.h"

namespace pumice {
namespace {

constexpr DTypeSet kGemmTypes =
    kReals | make_dtype_set(DType::int32, DType::uint32, DType::int64, DType::uint64);  // dtypes of matrix products
constexpr DTypeSet kQuantTypes = make_dtype_set(DType::int4, DType::uint4, DType::int8, DType::uint8);

void infer_conv_shape(ShapeContext& node) {
  const Shape shape = compute_conv_shape(node, 1);
  check_vector(node, 2, node.input(1).shape[0], "bias");
  node.output(0, node.input(0).dtype, shape);
}

// Checks that an input is a scalar or has one value per output channel.
void check_per_channel(const ShapeContext& node, size_t input, int64_t channels, std::string_view label) {
  if (node.has(input) && element_count(node.input(input).shape) != 1) check_vector(node, input, channels, label);
}

// Checks that an input is a scalar.
void check_scalar(const ShapeContext& node, size_t input, std::string_view label) {
  if (node.has(input) && element_count(node.input(input).shape) != 1)
    node.fail(std::string(label) + ": expected one number; given " + to_string(node.input(input).shape));
}

// Images have their channels in blocks of 8, [N, C / 8, 8, ..], or plain, [N, C, ..]. The output is blocked if its number of channels is a
// multiple of 8.
void infer_grouped_conv_shape(ShapeContext& node) {
  constexpr int64_t kGroup = 8;
  Shape x = node.input(0).shape;
  const Shape& w = node.input(1).shape;
  if (x.size() == 5) {
    if (x[2] != kGroup) node.fail("expected groups of 8 channels; given " + to_string(x));
    x = {x[0], x[1] * kGroup, x[3], x[4]};
  }
  const WindowGeometry geometry = compute_conv_geometry(node.attributes(), node.node(), x, w);
  if (x[1] != w[1]) node.fail("an input of " + std::to_string(x[1]) + " channels and a weight of " + std::to_string(w[1]) + " channels");
  check_vector(node, 2, w[0], "bias");
  Shape y = make_image_shape(x[0], w[0], geometry.output);
  if (w[0] % kGroup == 0) y = {y[0], w[0] / kGroup, kGroup, y[2], y[3]};
  node.output(0, node.input(0).dtype, y);
}

void infer_conv_integer_shape(ShapeContext& node) {
  const Shape shape = compute_conv_shape(node, 1);
  check_scalar(node, 2, "zero point of x");
  check_per_channel(node, 3, node.input(1).shape[0], "zero points of w");
  node.output(0, DType::int32, shape);
}

void infer_qlinear_conv_shape(ShapeContext& node) {
  const Shape shape = compute_conv_shape(node, 3);
  const int64_t channels = node.input(3).shape[0];
  check_scalar(node, 1, "scale of x");
  check_scalar(node, 2, "zero point of x");
  check_per_channel(node, 4, channels, "scales of w");
  check_per_channel(node, 5, channels, "zero points of w");
  check_scalar(node, 6, "scale of y");
  check_scalar(node, 7, "zero point of y");
  check_vector(node, 8, channels, "bias");
  node.output(0, node.input(7).dtype, shape);
}

void infer_conv_transpose_shape(ShapeContext& node) {
  const Shape &x = node.input(0).shape, &w = node.input(1).shape;
  const WindowGeometry geometry = compute_conv_transpose_geometry(node.attributes(), node.node(), x, w);
  check_groups(node, w[0], "input channels");
  if (x[1] != w[0]) node.fail("an input of " + std::to_string(x[1]) + " channels and a weight of " + std::to_string(w[0]));
  const int64_t channels = checked_mul(w[1], node.attributes().integer("group", 1), "output channels");
  check_vector(node, 2, channels, "bias");
  node.output(0, node.input(0).dtype, make_image_shape(x[0], channels, geometry.output));
}

void infer_gemm_shape(ShapeContext& node) {
  const auto size = [&](size_t input, std::string_view transposed, size_t axis) {
    if (node.input(input).rank() != 2)
      node.fail("input " + std::to_string(input) + " must be a matrix; given " + to_string(node.input(input).shape));
    return node.input(input).shape[node.attributes().integer(transposed, 0) != 0 ? 1 - axis : axis];
  };
  const Shape y{size(0, "transA", 0), size(1, "transB", 1)};
  if (size(0, "transA", 1) != size(1, "transB", 0))
    node.fail("inner sizes differ: A " + to_string(node.input(0).shape) + (node.attributes().integer("transA", 0) ? " transposed" : "") +
              ", B " + to_string(node.input(1).shape) + (node.attributes().integer("transB", 0) ? " transposed" : ""));
  if (node.has(2)) try {
      if (broadcast_shape(node.input(2).shape, y) != y) throw GraphError("", "");
    } catch (const GraphError&) {
      node.fail("C of shape " + to_string(node.input(2).shape) + " does not broadcast to " + to_string(y));
    }
  node.output(0, node.input(0).dtype, y);
}

// Shapes of a matrix product as in NumPy's matmul: a vector is a row on the left and a column on the right.
struct MatMulShape {
  Shape matrices;  // [batch.., M, N]
  bool row, column;

  Shape result() const {  // shape of the output, without the axes added for vectors
    Shape shape = matrices;
    if (column) shape.pop_back();
    if (row) shape.erase(shape.end() - (column ? 1 : 2));
    return shape;
  }
};

MatMulShape compute_matmul_shape(ShapeContext& node, size_t right) {
  Shape a = node.input(0).shape, b = node.input(right).shape;
  if (a.empty() || b.empty()) node.fail("scalars have no matrix product: " + to_string(a) + " by " + to_string(b));
  const bool row = a.size() == 1, column = b.size() == 1;
  if (row) a.insert(a.begin(), 1);
  if (column) b.push_back(1);
  if (a.back() != b[b.size() - 2])
    node.fail("inner sizes differ: " + to_string(node.input(0).shape) + " by " + to_string(node.input(right).shape));
  const int64_t rows = a[a.size() - 2], columns = b.back();
  Shape y;
  try {
    y = broadcast_shape({a.begin(), a.end() - 2}, {b.begin(), b.end() - 2});
  } catch (const GraphError& error) {
    node.fail(error.what());
  }
  y.insert(y.end(), {rows, columns});
  return {y, row, column};
}

void infer_matmul_shape(ShapeContext& node) {
  node.output(0, node.input(0).dtype, compute_matmul_shape(node, 1).result());
}

// Checks the shape of scales or zero points: a scalar, or one value per row (per column if `columns`).
void check_quant_params(const ShapeContext& node, size_t input, const MatMulShape& matmul, bool columns, std::string_view label) {
  if (!node.has(input) || compute_quant_param_strides(node.input(input), matmul.matrices, columns)) return;
  node.fail(std::string(label) + ": expected one number or one for each " + (columns ? "column" : "row") + " of " +
            to_string(matmul.matrices) + "; given " + to_string(node.input(input).shape));
}

void infer_matmul_integer_shape(ShapeContext& node) {
  const MatMulShape matmul = compute_matmul_shape(node, 1);
  check_quant_params(node, 2, matmul, false, "zero points of a");
  check_quant_params(node, 3, matmul, true, "zero points of b");
  node.output(0, DType::int32, matmul.result());
}

void infer_qlinear_matmul_shape(ShapeContext& node) {
  const MatMulShape matmul = compute_matmul_shape(node, 3);
  check_quant_params(node, 1, matmul, false, "scales of a");
  check_quant_params(node, 2, matmul, false, "zero points of a");
  check_quant_params(node, 4, matmul, true, "scales of b");
  check_quant_params(node, 5, matmul, true, "zero points of b");
  check_quant_params(node, 6, matmul, false, "scales of y");
  check_quant_params(node, 7, matmul, false, "zero points of y");
  if (element_count(node.input(6).shape) != element_count(node.input(7).shape))
    node.fail("expected as many zero points of y as scales; given " + to_string(node.input(7).shape) + " and " +
              to_string(node.input(6).shape));
  node.output(0, node.input(7).dtype, matmul.result());
}

void infer_einsum_shape(ShapeContext& node) {
  std::vector<Shape> shapes;
  for (size_t i = 0; i < node.input_count(); ++i) shapes.push_back(node.input(i).shape);
  const EinsumLabels labels = parse_einsum(node.node(), node.attributes().text("equation"), shapes);
  node.output(0, node.input(0).dtype, labels.get_shape(labels.output));
}

void infer_determinant_shape(ShapeContext& node) {
  const Shape& x = node.input(0).shape;
  if (x.back() != x[x.size() - 2]) node.fail("expected square matrices; given " + to_string(x));
  node.output(0, node.input(0).dtype, {x.begin(), x.end() - 2});
}

constexpr DTypeSet kInt8Types = make_dtype_set(DType::int8, DType::uint8),
                   kInt32Type = make_dtype_set(DType::int32);  // dtypes of quantised products

template <size_t kWeights>
void append_conv_split_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  append_batch_axis(node, axes);
  append_window_axes(node, compute_conv_geometry(*node.attributes, node.node, node.input(kData).shape, node.input(kWeights).shape), axes);
}

void append_conv_transpose_split_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  append_batch_axis(node, axes);
  if (!node.attributes->integers("output_shape").empty()) return;
  append_window_axes(node, compute_conv_transpose_geometry(*node.attributes, node.node, node.input(kData).shape, node.input(1).shape), axes,
                     true);
}

// A GEMM can be split along the rows of the left operand and along the columns of the right operand.
void append_gemm_split_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const bool transposed[] = {node.attributes->integer("transA", 0) != 0, node.attributes->integer("transB", 0) != 0};
  for (const int axis : {0, 1}) {
    SplitAxis& split = axes.emplace_back(node.output(0).shape[static_cast<size_t>(axis)], std::vector<int>(node.inputs.size(), kNotSplit),
                                         std::vector{axis});
    split.inputs[static_cast<size_t>(axis)] = transposed[axis] ? 1 - axis : axis;
    if (node.has_input(2)) split.inputs[2] = find_broadcast_axis(node.input(2), axis, 2);
  }
}

// Counts the FLOPs of one GEMM, or of two for a gated product.
uint64_t count_quant_gemm_flops(const LowerContext& node) {
  constexpr size_t kGate = 5;
  return count_gemm_flops(node) * (node.has_input(kGate) ? 2 : 1);
}

// Gaussian elimination needs one multiply-add for each element to the lower right of each pivot.
uint64_t count_determinant_flops(const LowerContext& node) {
  const Shape& x = node.input(0).shape;
  return 2 * static_cast<uint64_t>(node.input(0).elements()) * static_cast<uint64_t>(x.back()) / 3;
}

// The epilogue can read a residual if the weights are constant and the convolution has one group.
bool conv_supports_residual(const Attributes& attributes, const TensorDesc& weights) {
  return weights.rank() <= 4 && attributes.integer("group", 1) == 1;
}

bool gemm_supports_residual(const Attributes&, const TensorDesc&) {
  return true;
}

bool matmul_supports_residual(const Attributes&, const TensorDesc& weights) {
  return weights.rank() == 2;
}

// For operators that reserve an input for the residual.
bool always_supports_residual(const Attributes&, const TensorDesc&) {
  return true;
}

// Adds the properties common to int8 GEMMs and convolutions, which produce integer sums.
OperatorRow make_int8_row(OperatorRow row) {
  row.skeleton = KernelKind::contraction;
  row.schema.outputs = {value_role("y", kInt32Type)};
  row.strides = StrideSupport::packed;
  row.epilogue = true;
  return row;
}

}  // namespace

OperatorRows define_conv_gemm_operators() {
  const std::vector<ValueRole> conv_inputs{value_role("x", kFloats, 'T'), value_role("w", kFloats, 'T'), optional_role("b", kFloats, 'T')},
      y{value_role("y", kFloats)};
  auto transpose_attributes = make_conv_attributes(), window_attributes = make_conv_attributes();
  std::erase_if(window_attributes, [](const AttributeSchema& attribute) { return attribute.name == "group"; });
  transpose_attributes.push_back(optional_attribute("output_padding", AttributeKind::integers));
  transpose_attributes.push_back(optional_attribute("output_shape", AttributeKind::integers));
  const std::vector<AttributeSchema> gemm_attributes{real_attribute("alpha", 1), real_attribute("beta", 1), integer_attribute("transA", 0),
                                                     integer_attribute("transB", 0)};
  return {
      {.name = "Conv",
       .skeleton = KernelKind::contraction,
       .schema = {.inputs = conv_inputs, .outputs = y, .attributes = make_conv_attributes(), .min_rank = 3},
       .shape = infer_conv_shape,
       .lower = lower_conv,
       .flop = count_convolution_flops<>,
       .pack = pack_conv,
       .strides = StrideSupport::image,
       .layout = {.prefers_channels_last = true},
       .split = append_conv_split_axes<1>,
       .precision = {.half_inputs = 1, .gemm_inputs = 1 | 1 << 1, .stores_fp32_or_half = true},
       .epilogue = true,
       .residual = conv_supports_residual},
      // A 2D convolution on images whose channels may be stored in blocks of 8.
      {.name = "pumice::GroupedConv",
       .skeleton = KernelKind::contraction,
       .schema = {.inputs = conv_inputs, .outputs = y, .attributes = window_attributes, .min_rank = 4, .max_rank = 5},
       .shape = infer_grouped_conv_shape,
       .lower = lower_grouped_conv,
       .flop = count_convolution_flops<>,
       .pack = pack_grouped_conv,
       .precision = {.half_inputs = 1, .gemm_inputs = 1 | 1 << 1, .stores_fp32_or_half = true},
       .epilogue = true},
      {.name = "ConvTranspose",
       .skeleton = KernelKind::contraction,
       .schema = {.inputs = conv_inputs, .outputs = y, .attributes = transpose_attributes, .min_rank = 3},
       .shape = infer_conv_transpose_shape,
       .lower = lower_conv_transpose,
       .flop = count_convolution_flops<1, true>,
       .pack = pack_conv_transpose,
       .strides = StrideSupport::image,
       .split = append_conv_transpose_split_axes,
       .precision = {.half_inputs = 1, .gemm_inputs = 1 | 1 << 1, .stores_fp32_or_half = true},
       .epilogue = true},
      {.name = "Gemm",
       .skeleton = KernelKind::contraction,
       .schema = {.inputs = {value_role("a", kGemmTypes, 'T'), value_role("b", kGemmTypes, 'T'), optional_role("c", kGemmTypes, 'T')},
                  .outputs = {value_role("y", kGemmTypes)},
                  .attributes = gemm_attributes,
                  .min_rank = 2,
                  .max_rank = 2},
       .shape = infer_gemm_shape,
       .lower = lower_gemm,
       .flop = count_gemm_flops,
       .scales = "alpha",
       .pack = pack_gemm,
       .split = append_gemm_split_axes,
       .precision = {.half_inputs = 1, .gemm_inputs = 1 | 1 << 1, .splits_into_fp16 = true, .stores_fp32_or_half = true},
       .epilogue = true,
       .residual = gemm_supports_residual},
      {.name = "MatMul",
       .skeleton = KernelKind::contraction,
       .schema = {.inputs = {value_role("a", kGemmTypes, 'T'), value_role("b", kGemmTypes, 'T')},
                  .outputs = {value_role("y", kGemmTypes)},
                  .min_rank = 1},
       .shape = infer_matmul_shape,
       .lower = lower_matmul,
       .flop = count_gemm_flops,
       .pack = pack_matmul,
       .layout = {.strided_weights = true},
       .precision = {.half_inputs = 1, .gemm_inputs = 1 | 1 << 1, .splits_into_fp16 = true, .stores_fp32_or_half = true},
       .epilogue = true,
       .residual = matmul_supports_residual},
      // MatMul with a constant matrix and a bias per column.
      {.name = "pumice::MatMul",
       .skeleton = KernelKind::contraction,
       .schema = {.inputs = {value_role("a", kFloats), value_role("b", kFloats), value_role("bias", kFloats)},
                  .outputs = {value_role("y", kFloats)},
                  .min_rank = 1},
       .shape = infer_matmul_shape,
       .lower = lower_matmul,
       .flop = count_gemm_flops,
       .pack = pack_matmul,
       .layout = {.strided_weights = true},
       .precision = {.half_inputs = 1, .gemm_inputs = 1 | 1 << 1, .splits_into_fp16 = true, .stores_fp32_or_half = true},
       .epilogue = true,
       .residual = matmul_supports_residual},
      // MatMul with a block-quantised matrix [N, K]. Each block along K has a scale and, with has_zero_points, a zero point; otherwise all
      // blocks have the same zero point. With a gate, the result is an expression of this product and the product with a second matrix.
      // With a gain, `a` is first normalised by RMSNormalization.
      {.name = "pumice::BlockQuantMatMul",
       .skeleton = KernelKind::contraction,
       .schema = {.inputs = {value_role("a", kFloats), value_role("w", kQuantTypes, 'W'), value_role("scale", kFloats),
                             optional_role("residual", kFloats), optional_role("zero", kQuantTypes, 'W'),
                             optional_role("gate_w", kQuantTypes, 'W'), optional_role("gate_scale", kFloats),
                             optional_role("gate_zero", kQuantTypes, 'W'), optional_role("gain", kFloats)},
                  .outputs = {value_role("y", kFloats)},
                  .attributes = {required_attribute("block_size", AttributeKind::integer), real_attribute("epsilon", 0),
                                 text_attribute("gate_epilogue", "x"), integer_attribute("fp16_scales", 0),
                                 integer_attribute("has_zero_points", 0), integer_attribute("zero_point", 0)},
                  .min_rank = 1},
       .shape = infer_block_quant_matmul_shape,
       .lower = lower_block_quant_matmul,
       .flop = count_quant_gemm_flops,
       .pack = pack_block_quant_matmul,
       .epilogue = true,
       .residual = always_supports_residual},
      make_int8_row({.name = "MatMulInteger",
                     .schema = {.inputs = {value_role("a", kInt8Types, 'A'), value_role("b", kInt8Types, 'B'),
                                           optional_role("a_zero_point", kInt8Types, 'A'), optional_role("b_zero_point", kInt8Types, 'B')},
                                .min_rank = 1},
                     .shape = infer_matmul_integer_shape,
                     .lower = lower_matmul_integer,
                     .flop = count_gemm_flops,
                     .pack = pack_matmul_integer}),
      make_int8_row({.name = "ConvInteger",
                     .schema = {.inputs = {value_role("x", kInt8Types, 'T'), value_role("w", kInt8Types, 'W'),
                                           optional_role("x_zero_point", kInt8Types, 'T'), optional_role("w_zero_point", kInt8Types, 'W')},
                                .attributes = make_conv_attributes(),
                                .min_rank = 3},
                     .shape = infer_conv_integer_shape,
                     .lower = lower_conv_integer,
                     .flop = count_convolution_flops<>,
                     .pack = pack_conv_integer,
                     .split = append_conv_split_axes<1>}),
      {.name = "QLinearMatMul",
       .skeleton = KernelKind::contraction,
       .schema = {.inputs = {value_role("a", kInt8Types, 'A'), value_role("a_scale", kFloats), value_role("a_zero_point", kInt8Types, 'A'),
                             value_role("b", kInt8Types, 'B'), value_role("b_scale", kFloats), value_role("b_zero_point", kInt8Types, 'B'),
                             value_role("y_scale", kFloats), value_role("y_zero_point", kInt8Types)},
                  .outputs = {value_role("y", kInt8Types)},
                  .min_rank = 1},
       .shape = infer_qlinear_matmul_shape,
       .lower = lower_qlinear_matmul,
       .flop = count_gemm_flops,
       .pack = pack_qlinear_matmul,
       .strides = StrideSupport::packed,
       .epilogue = true},
      {.name = "QLinearConv",
       .skeleton = KernelKind::contraction,
       .schema = {.inputs = {value_role("x", kInt8Types, 'X'), value_role("x_scale", kFloats), value_role("x_zero_point", kInt8Types, 'X'),
                             value_role("w", kInt8Types, 'W'), value_role("w_scale", kFloats), value_role("w_zero_point", kInt8Types, 'W'),
                             value_role("y_scale", kFloats), value_role("y_zero_point", kInt8Types), optional_role("b", kInt32Type)},
                  .outputs = {value_role("y", kInt8Types)},
                  .attributes = make_conv_attributes(),
                  .min_rank = 3},
       .shape = infer_qlinear_conv_shape,
       .lower = lower_qlinear_conv,
       .flop = count_convolution_flops<3>,
       .pack = pack_qlinear_conv,
       .strides = StrideSupport::packed,
       .split = append_conv_split_axes<3>,
       .epilogue = true},
      {.name = "Einsum",
       .skeleton = KernelKind::contraction,
       .schema = {.inputs = {variadic_role("x", kGemmTypes, 'T')},
                  .outputs = {value_role("y", kGemmTypes)},
                  .attributes = {required_attribute("equation", AttributeKind::text)}},
       .shape = infer_einsum_shape,
       .lower = lower_einsum,
       .flop = count_einsum_flops,
       .epilogue = true},
      {.name = "Det",
       .skeleton = KernelKind::scan,
       .schema = {.inputs = {value_role("x", kReals)}, .outputs = {value_role("y", kReals)}, .min_rank = 2},
       .shape = infer_determinant_shape,
       .lower = lower_determinant,
       .flop = count_determinant_flops,
       .strides = StrideSupport::packed,
       .split = append_axes_except_last_two}};
}

}  // namespace pumice

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

constexpr DTypeSet kGemmTypes = kReals | set_of(DType::int32, DType::uint32, DType::int64, DType::uint64);  // dtypes of matrix products
constexpr DTypeSet kQuantTypes = set_of(DType::int4, DType::uint4, DType::int8, DType::uint8);

void shape_of_conv(ShapeContext& node) {
  const Shape shape = infer_conv_shape(node, 1);
  check_vector(node, 2, node.input(1).shape[0], "bias");
  node.output(0, node.input(0).dtype, shape);
}

// Checks that an input is a scalar for all output channels or has one value per channel.
void check_per_channel(const ShapeContext& node, size_t input, int64_t channels, std::string_view label) {
  if (node.has(input) && element_count(node.input(input).shape) != 1) check_vector(node, input, channels, label);
}

// Checks that an input is a scalar.
void check_scalar(const ShapeContext& node, size_t input, std::string_view label) {
  if (node.has(input) && element_count(node.input(input).shape) != 1)
    node.fail(std::string(label) + ": one number expected; given " + to_string(node.input(input).shape));
}

// Channels are in groups of 8, [N, groups, 8, ..], or plain, [N, C, ..]. The output is grouped if its channels are a multiple of 8.
void shape_of_grouped_conv(ShapeContext& node) {
  constexpr int64_t kGroup = 8;
  Shape x = node.input(0).shape;
  const Shape& w = node.input(1).shape;
  if (x.size() == 5) {
    if (x[2] != kGroup) node.fail("groups of 8 channels expected; given " + to_string(x));
    x = {x[0], x[1] * kGroup, x[3], x[4]};
  }
  const WindowGeometry geometry = compute_conv_geometry(node.attributes(), node.node(), x, w);
  if (x[1] != w[1]) node.fail("an input of " + std::to_string(x[1]) + " channels and a weight of " + std::to_string(w[1]) + " channels");
  check_vector(node, 2, w[0], "bias");
  Shape y = make_image_shape(x[0], w[0], geometry.output);
  if (w[0] % kGroup == 0) y = {y[0], w[0] / kGroup, kGroup, y[2], y[3]};
  node.output(0, node.input(0).dtype, y);
}

void shape_of_conv_integer(ShapeContext& node) {
  const Shape shape = infer_conv_shape(node, 1);
  check_scalar(node, 2, "zero point of x");
  check_per_channel(node, 3, node.input(1).shape[0], "zero points of w");
  node.output(0, DType::int32, shape);
}

void shape_of_qlinear_conv(ShapeContext& node) {
  const Shape shape = infer_conv_shape(node, 3);
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

void shape_of_conv_transpose(ShapeContext& node) {
  const Shape &x = node.input(0).shape, &w = node.input(1).shape;
  const WindowGeometry geometry = compute_conv_transpose_geometry(node.attributes(), node.node(), x, w);
  check_groups(node, w[0], "input channels");
  if (x[1] != w[0]) node.fail("an input of " + std::to_string(x[1]) + " channels and a weight of " + std::to_string(w[0]));
  const int64_t channels = checked_mul(w[1], node.attributes().integer("group", 1), "output channels");
  check_vector(node, 2, channels, "bias");
  node.output(0, node.input(0).dtype, make_image_shape(x[0], channels, geometry.output));
}

void shape_of_gemm(ShapeContext& node) {
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

// Shape of NumPy's matmul for inputs 0 and `right`: a vector is a row on the left and a column on the right.
struct MatMulShape {
  Shape matrices;  // [batch.., M, N]
  bool row, column;

  Shape result() const {  // without the axes added for vectors
    Shape shape = matrices;
    if (column) shape.pop_back();
    if (row) shape.erase(shape.end() - (column ? 1 : 2));
    return shape;
  }
};

MatMulShape infer_matmul_shape(ShapeContext& node, size_t right) {
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

void shape_of_matmul(ShapeContext& node) {
  node.output(0, node.input(0).dtype, infer_matmul_shape(node, 1).result());
}

// Checks scales or zero points per row or, with `columns`, per column.
void check_quant_params(const ShapeContext& node, size_t input, const MatMulShape& matmul, bool columns, std::string_view label) {
  if (!node.has(input) || compute_quant_param_strides(node.input(input), matmul.matrices, columns)) return;
  node.fail(std::string(label) + ": one number or one for each " + (columns ? "column" : "row") + " of " + to_string(matmul.matrices) +
            " expected; given " + to_string(node.input(input).shape));
}

void shape_of_matmul_integer(ShapeContext& node) {
  const MatMulShape matmul = infer_matmul_shape(node, 1);
  check_quant_params(node, 2, matmul, false, "zero points of a");
  check_quant_params(node, 3, matmul, true, "zero points of b");
  node.output(0, DType::int32, matmul.result());
}

void shape_of_qlinear_matmul(ShapeContext& node) {
  const MatMulShape matmul = infer_matmul_shape(node, 3);
  check_quant_params(node, 1, matmul, false, "scales of a");
  check_quant_params(node, 2, matmul, false, "zero points of a");
  check_quant_params(node, 4, matmul, true, "scales of b");
  check_quant_params(node, 5, matmul, true, "zero points of b");
  check_quant_params(node, 6, matmul, false, "scales of y");
  check_quant_params(node, 7, matmul, false, "zero points of y");
  if (element_count(node.input(6).shape) != element_count(node.input(7).shape))
    node.fail("as many zero points of y as scales expected; given " + to_string(node.input(7).shape) + " and " +
              to_string(node.input(6).shape));
  node.output(0, node.input(7).dtype, matmul.result());
}

void shape_of_einsum(ShapeContext& node) {
  std::vector<Shape> shapes;
  for (size_t i = 0; i < node.input_count(); ++i) shapes.push_back(node.input(i).shape);
  const EinsumLabels labels = parse_einsum(node.node(), node.attributes().text("equation"), shapes);
  node.output(0, node.input(0).dtype, labels.shape_of(labels.output));
}

void shape_of_determinant(ShapeContext& node) {
  const Shape& x = node.input(0).shape;
  if (x.back() != x[x.size() - 2]) node.fail("square matrices expected; given " + to_string(x));
  node.output(0, node.input(0).dtype, {x.begin(), x.end() - 2});
}

constexpr DTypeSet kInt8Types = set_of(DType::int8, DType::uint8), kInt32Type = set_of(DType::int32);  // dtypes of quantised products

template <size_t kWeights>
void split_conv_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  split_batch(node, axes);
  split_windows(node, compute_conv_geometry(*node.attributes, node.node, node.input(kData).shape, node.input(kWeights).shape), axes);
}

void split_conv_transpose_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  split_batch(node, axes);
  if (!node.attributes->integers("output_shape").empty()) return;
  split_windows(node, compute_conv_transpose_geometry(*node.attributes, node.node, node.input(kData).shape, node.input(1).shape), axes,
                true);
}

// Rows of the left operand and columns of the right one.
void split_gemm_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const bool transposed[] = {node.attributes->integer("transA", 0) != 0, node.attributes->integer("transB", 0) != 0};
  for (const int axis : {0, 1}) {
    SplitAxis& split = axes.emplace_back(node.output(0).shape[static_cast<size_t>(axis)], std::vector<int>(node.inputs.size(), kNotSplit),
                                         std::vector{axis});
    split.inputs[static_cast<size_t>(axis)] = transposed[axis] ? 1 - axis : axis;
    if (node.has_input(2)) split.inputs[2] = broadcast_axis(node.input(2), axis, 2);
  }
}

// The gate is a second GEMM.
uint64_t quant_gemm_flop(const LowerContext& node) {
  constexpr size_t kGate = 5;
  return gemm_flop(node) * (node.has_input(kGate) ? 2 : 1);
}

// Elimination needs one multiply-add for each pivot, row below it and column right of it.
uint64_t determinant_flop(const LowerContext& node) {
  const Shape& x = node.input(0).shape;
  return 2 * static_cast<uint64_t>(node.input(0).elements()) * static_cast<uint64_t>(x.back()) / 3;
}

// Epilogues read a residual if the weights are constant and have one group.
bool conv_supports_residual(const Attributes& attributes, const TensorDesc& weights) {
  return weights.rank() <= 4 && attributes.integer("group", 1) == 1;
}

bool gemm_supports_residual(const Attributes&, const TensorDesc&) {
  return true;
}

bool matmul_supports_residual(const Attributes&, const TensorDesc& weights) {
  return weights.rank() == 2;
}

// The operator reserves an input for the residual.
bool always_supports_residual(const Attributes&, const TensorDesc&) {
  return true;
}

// Adds the properties common to int8 GEMMs and convolutions, which produce integer sums.
OperatorRow make_int8_row(OperatorRow row) {
  row.skeleton = KernelKind::contraction;
  row.schema.outputs = {value("y", kInt32Type)};
  row.strides = StrideSupport::packed;
  row.epilogue = true;
  return row;
}

}  // namespace

OperatorRows conv_gemm_operators() {
  const std::vector<ValueRole> conv_inputs{value("x", kFloats, 'T'), value("w", kFloats, 'T'), optional_value("b", kFloats, 'T')},
      y{value("y", kFloats)};
  auto transpose_attributes = make_conv_attributes(), window_attributes = make_conv_attributes();
  std::erase_if(window_attributes, [](const AttributeSchema& attribute) { return attribute.name == "group"; });
  transpose_attributes.push_back(optional("output_padding", AttributeKind::integers));
  transpose_attributes.push_back(optional("output_shape", AttributeKind::integers));
  const std::vector<AttributeSchema> gemm_attributes{real("alpha", 1), real("beta", 1), integer("transA", 0), integer("transB", 0)};
  return {
      {.name = "Conv",
       .skeleton = KernelKind::contraction,
       .schema = {.inputs = conv_inputs, .outputs = y, .attributes = make_conv_attributes(), .min_rank = 3},
       .shape = shape_of_conv,
       .lower = lower_conv,
       .flop = convolution_flop<>,
       .pack = pack_conv,
       .strides = StrideSupport::image,
       .prefers_channels_last = true,
       .split = split_conv_axes<1>,
       .half_inputs = 1,
       .gemm_inputs = 1 | 1 << 1,
       .stores_fp32_or_half = true,
       .epilogue = true,
       .residual = conv_supports_residual,
       .pooled_operator = "pumice::PooledConv",
       .supports_pool = conv_supports_pool},
      // A 2D convolution on images whose channels may be blocked by 8.
      {.name = "pumice::GroupedConv",
       .skeleton = KernelKind::contraction,
       .schema = {.inputs = conv_inputs, .outputs = y, .attributes = window_attributes, .min_rank = 4, .max_rank = 5},
       .shape = shape_of_grouped_conv,
       .lower = lower_grouped_conv,
       .flop = convolution_flop<>,
       .pack = pack_grouped_conv,
       .half_inputs = 1,
       .gemm_inputs = 1 | 1 << 1,
       .stores_fp32_or_half = true,
       .epilogue = true},
      {.name = "ConvTranspose",
       .skeleton = KernelKind::contraction,
       .schema = {.inputs = conv_inputs, .outputs = y, .attributes = transpose_attributes, .min_rank = 3},
       .shape = shape_of_conv_transpose,
       .lower = lower_conv_transpose,
       .flop = convolution_flop<1, true>,
       .pack = pack_conv_transpose,
       .strides = StrideSupport::image,
       .split = split_conv_transpose_axes,
       .half_inputs = 1,
       .gemm_inputs = 1 | 1 << 1,
       .stores_fp32_or_half = true,
       .epilogue = true},
      {.name = "Gemm",
       .skeleton = KernelKind::contraction,
       .schema = {.inputs = {value("a", kGemmTypes, 'T'), value("b", kGemmTypes, 'T'), optional_value("c", kGemmTypes, 'T')},
                  .outputs = {value("y", kGemmTypes)},
                  .attributes = gemm_attributes,
                  .min_rank = 2,
                  .max_rank = 2},
       .shape = shape_of_gemm,
       .lower = lower_gemm,
       .flop = gemm_flop,
       .scales = "alpha",
       .pack = pack_gemm,
       .split = split_gemm_axes,
       .half_inputs = 1,
       .gemm_inputs = 1 | 1 << 1,
       .splits_into_fp16 = true,
       .stores_fp32_or_half = true,
       .epilogue = true,
       .residual = gemm_supports_residual,
       .softmax_operator = "pumice::MatMulSoftmax",
       .supports_softmax = gemm_supports_softmax},
      {.name = "MatMul",
       .skeleton = KernelKind::contraction,
       .schema = {.inputs = {value("a", kGemmTypes, 'T'), value("b", kGemmTypes, 'T')}, .outputs = {value("y", kGemmTypes)}, .min_rank = 1},
       .shape = shape_of_matmul,
       .lower = lower_matmul,
       .flop = gemm_flop,
       .pack = pack_matmul,
       .strided_weights = true,
       .half_inputs = 1,
       .gemm_inputs = 1 | 1 << 1,
       .splits_into_fp16 = true,
       .stores_fp32_or_half = true,
       .epilogue = true,
       .residual = matmul_supports_residual,
       .softmax_operator = "pumice::MatMulSoftmax",
       .supports_softmax = matmul_supports_softmax},
      // MatMul with a constant matrix and a bias per column.
      {.name = "pumice::MatMul",
       .skeleton = KernelKind::contraction,
       .schema = {.inputs = {value("a", kFloats), value("b", kFloats), value("bias", kFloats)},
                  .outputs = {value("y", kFloats)},
                  .min_rank = 1},
       .shape = shape_of_matmul,
       .lower = lower_matmul,
       .flop = gemm_flop,
       .pack = pack_matmul,
       .strided_weights = true,
       .half_inputs = 1,
       .gemm_inputs = 1 | 1 << 1,
       .splits_into_fp16 = true,
       .stores_fp32_or_half = true,
       .epilogue = true,
       .residual = matmul_supports_residual,
       .softmax_operator = "pumice::MatMulSoftmax",
       .supports_softmax = matmul_supports_softmax},
      // MatMul with a quantised matrix [N, K]: a scale per block along K and, with has_zero_points, a zero point per block, else one for
      // all. With a gate, the result is an expression of this product and of the product with a second matrix. With a gain, `a` is
      // normalised by RMSNormalization first.
      {.name = "pumice::BlockQuantMatMul",
       .skeleton = KernelKind::contraction,
       .schema = {.inputs = {value("a", kFloats), value("w", kQuantTypes, 'W'), value("scale", kFloats),
                             optional_value("residual", kFloats), optional_value("zero", kQuantTypes, 'W'),
                             optional_value("gate_w", kQuantTypes, 'W'), optional_value("gate_scale", kFloats),
                             optional_value("gate_zero", kQuantTypes, 'W'), optional_value("gain", kFloats)},
                  .outputs = {value("y", kFloats)},
                  .attributes = {required("block_size", AttributeKind::integer), real("epsilon", 0), text("gate_epilogue", "x"),
                                 integer("fp16_scales", 0), integer("has_zero_points", 0), integer("zero_point", 0)},
                  .min_rank = 1},
       .shape = shape_of_block_matmul,
       .lower = lower_block_matmul,
       .flop = quant_gemm_flop,
       .pack = pack_block_matmul,
       .epilogue = true,
       .residual = always_supports_residual},
      make_int8_row(
          {.name = "MatMulInteger",
           .schema = {.inputs = {value("a", kInt8Types, 'A'), value("b", kInt8Types, 'B'), optional_value("a_zero_point", kInt8Types, 'A'),
                                 optional_value("b_zero_point", kInt8Types, 'B')},
                      .min_rank = 1},
           .shape = shape_of_matmul_integer,
           .lower = lower_matmul_integer,
           .flop = gemm_flop,
           .pack = pack_matmul_integer}),
      make_int8_row(
          {.name = "ConvInteger",
           .schema = {.inputs = {value("x", kInt8Types, 'T'), value("w", kInt8Types, 'W'), optional_value("x_zero_point", kInt8Types, 'T'),
                                 optional_value("w_zero_point", kInt8Types, 'W')},
                      .attributes = make_conv_attributes(),
                      .min_rank = 3},
           .shape = shape_of_conv_integer,
           .lower = lower_conv_integer,
           .flop = convolution_flop<>,
           .pack = pack_conv_integer,
           .split = split_conv_axes<1>}),
      {.name = "QLinearMatMul",
       .skeleton = KernelKind::contraction,
       .schema = {.inputs = {value("a", kInt8Types, 'A'), value("a_scale", kFloats), value("a_zero_point", kInt8Types, 'A'),
                             value("b", kInt8Types, 'B'), value("b_scale", kFloats), value("b_zero_point", kInt8Types, 'B'),
                             value("y_scale", kFloats), value("y_zero_point", kInt8Types)},
                  .outputs = {value("y", kInt8Types)},
                  .min_rank = 1},
       .shape = shape_of_qlinear_matmul,
       .lower = lower_qlinear_matmul,
       .flop = gemm_flop,
       .pack = pack_qlinear_matmul,
       .strides = StrideSupport::packed,
       .epilogue = true},
      {.name = "QLinearConv",
       .skeleton = KernelKind::contraction,
       .schema = {.inputs = {value("x", kInt8Types, 'X'), value("x_scale", kFloats), value("x_zero_point", kInt8Types, 'X'),
                             value("w", kInt8Types, 'W'), value("w_scale", kFloats), value("w_zero_point", kInt8Types, 'W'),
                             value("y_scale", kFloats), value("y_zero_point", kInt8Types), optional_value("b", kInt32Type)},
                  .outputs = {value("y", kInt8Types)},
                  .attributes = make_conv_attributes(),
                  .min_rank = 3},
       .shape = shape_of_qlinear_conv,
       .lower = lower_qlinear_conv,
       .flop = convolution_flop<3>,
       .pack = pack_qlinear_conv,
       .strides = StrideSupport::packed,
       .split = split_conv_axes<3>,
       .epilogue = true},
      {.name = "Einsum",
       .skeleton = KernelKind::contraction,
       .schema = {.inputs = {variadic_value("x", kGemmTypes, 'T')},
                  .outputs = {value("y", kGemmTypes)},
                  .attributes = {required("equation", AttributeKind::text)}},
       .shape = shape_of_einsum,
       .lower = lower_einsum,
       .flop = einsum_flop,
       .epilogue = true},
      {.name = "Det",
       .skeleton = KernelKind::scan,
       .schema = {.inputs = {value("x", kReals)}, .outputs = {value("y", kReals)}, .min_rank = 2},
       .shape = shape_of_determinant,
       .lower = lower_determinant,
       .flop = determinant_flop,
       .strides = StrideSupport::packed,
       .split = split_all_but_last_two}};
}

}  // namespace pumice

// Convolutions, matrix products and determinants.
#include "core/error.h"
#include "operators/contraction/block_product.h"
#include "operators/contraction/einsum.h"
#include "operators/contraction/requantize.h"
#include "operators/geometry/window_geometry.h"
#include "operators/row/families.h"
#include "operators/row/row_parts.h"

namespace pumice {
namespace {

constexpr DTypeSet kFactors = kReals | set_of(DType::int32, DType::uint32, DType::int64, DType::uint64);  // of matrix products

Shape image_shape(int64_t batch, int64_t channels, const std::vector<int64_t>& spatial) {
  Shape shape{batch, channels};
  shape.insert(shape.end(), spatial.begin(), spatial.end());
  return shape;
}

// `channels` must divide into groups.
void check_groups(const ShapeContext& node, int64_t channels, std::string_view what) {
  const int64_t groups = node.attributes().integer("group", 1);
  if (groups < 1 || channels % groups != 0)
    node.fail(std::to_string(channels) + " " + std::string(what) + " in " + std::to_string(groups) + " groups");
}

// The shape that input 0 and the weights at input `weights` give.
Shape conv_shape(ShapeContext& node, size_t weights) {
  const Shape &x = node.input(0).shape, &w = node.input(weights).shape;
  const WindowGeometry geometry = conv_geometry(node.attributes(), node.node(), x, w);
  check_groups(node, w[0], "output channels");
  const int64_t groups = node.attributes().integer("group", 1);
  if (x[1] != w[1] * groups)
    node.fail("an input of " + std::to_string(x[1]) + " channels and a weight of " + std::to_string(w[1]) + " channels in " +
              std::to_string(groups) + " groups");
  return image_shape(x[0], w[0], geometry.output);
}

void shape_of_conv(ShapeContext& node) {
  const Shape shape = conv_shape(node, 1);
  check_vector(node, 2, node.input(1).shape[0], "bias");
  node.output(0, node.input(0).dtype, shape);
}

// A number for all output channels, or one for each.
void check_channels(const ShapeContext& node, size_t input, int64_t channels, std::string_view what) {
  if (node.has(input) && element_count(node.input(input).shape) != 1) check_vector(node, input, channels, what);
}

// One number.
void check_number(const ShapeContext& node, size_t input, std::string_view what) {
  if (node.has(input) && element_count(node.input(input).shape) != 1)
    node.fail(std::string(what) + ": one number expected; given " + to_string(node.input(input).shape));
}

// [N, groups, 8, ..] of channels, or [N, C, ..]: of the input as it is given, of the output where they are whole groups.
void shape_of_grouped_conv(ShapeContext& node) {
  constexpr int64_t kGroup = 8;
  Shape x = node.input(0).shape;
  const Shape& w = node.input(1).shape;
  if (x.size() == 5) {
    if (x[2] != kGroup) node.fail("groups of 8 channels expected; given " + to_string(x));
    x = {x[0], x[1] * kGroup, x[3], x[4]};
  }
  const WindowGeometry geometry = conv_geometry(node.attributes(), node.node(), x, w);
  if (x[1] != w[1]) node.fail("an input of " + std::to_string(x[1]) + " channels and a weight of " + std::to_string(w[1]) + " channels");
  check_vector(node, 2, w[0], "bias");
  Shape y = image_shape(x[0], w[0], geometry.output);
  if (w[0] % kGroup == 0) y = {y[0], w[0] / kGroup, kGroup, y[2], y[3]};
  node.output(0, node.input(0).dtype, y);
}

void shape_of_conv_integer(ShapeContext& node) {
  const Shape shape = conv_shape(node, 1);
  check_number(node, 2, "zero point of x");
  check_channels(node, 3, node.input(1).shape[0], "zero points of w");
  node.output(0, DType::int32, shape);
}

void shape_of_qlinear_conv(ShapeContext& node) {
  const Shape shape = conv_shape(node, 3);
  const int64_t channels = node.input(3).shape[0];
  check_number(node, 1, "scale of x");
  check_number(node, 2, "zero point of x");
  check_channels(node, 4, channels, "scales of w");
  check_channels(node, 5, channels, "zero points of w");
  check_number(node, 6, "scale of y");
  check_number(node, 7, "zero point of y");
  check_vector(node, 8, channels, "bias");
  node.output(0, node.input(7).dtype, shape);
}

void shape_of_conv_transpose(ShapeContext& node) {
  const Shape &x = node.input(0).shape, &w = node.input(1).shape;
  const WindowGeometry geometry = conv_transpose_geometry(node.attributes(), node.node(), x, w);
  check_groups(node, w[0], "input channels");
  if (x[1] != w[0]) node.fail("an input of " + std::to_string(x[1]) + " channels and a weight of " + std::to_string(w[0]));
  const int64_t channels = checked_mul(w[1], node.attributes().integer("group", 1), "output channels");
  check_vector(node, 2, channels, "bias");
  node.output(0, node.input(0).dtype, image_shape(x[0], channels, geometry.output));
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

// NumPy's matmul of inputs 0 and `right`: a vector is a row on the left and a column on the right.
struct ProductShape {
  Shape matrices;  // [batch.., rows, columns]
  bool row, column;

  Shape result() const {  // without the axes of vectors
    Shape shape = matrices;
    if (column) shape.pop_back();
    if (row) shape.erase(shape.end() - (column ? 1 : 2));
    return shape;
  }
};

ProductShape product_shape(ShapeContext& node, size_t right) {
  Shape a = node.input(0).shape, b = node.input(right).shape;
  if (a.empty() || b.empty()) node.fail("a product of a scalar: " + to_string(a) + " by " + to_string(b));
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
  node.output(0, node.input(0).dtype, product_shape(node, 1).result());
}

// Scales or zero points of rows or, `columns`, of columns.
void check_quantities(const ShapeContext& node, size_t input, const ProductShape& product, bool columns, std::string_view what) {
  if (!node.has(input) || quantity_strides(node.input(input), product.matrices, columns)) return;
  node.fail(std::string(what) + ": one number or one for each " + (columns ? "column" : "row") + " of " + to_string(product.matrices) +
            " expected; given " + to_string(node.input(input).shape));
}

void shape_of_matmul_integer(ShapeContext& node) {
  const ProductShape product = product_shape(node, 1);
  check_quantities(node, 2, product, false, "zero points of a");
  check_quantities(node, 3, product, true, "zero points of b");
  node.output(0, DType::int32, product.result());
}

void shape_of_qlinear_matmul(ShapeContext& node) {
  const ProductShape product = product_shape(node, 3);
  check_quantities(node, 1, product, false, "scales of a");
  check_quantities(node, 2, product, false, "zero points of a");
  check_quantities(node, 4, product, true, "scales of b");
  check_quantities(node, 5, product, true, "zero points of b");
  check_quantities(node, 6, product, false, "scales of y");
  check_quantities(node, 7, product, false, "zero points of y");
  if (element_count(node.input(6).shape) != element_count(node.input(7).shape))
    node.fail("as many zero points of y as scales expected; given " + to_string(node.input(7).shape) + " and " +
              to_string(node.input(6).shape));
  node.output(0, node.input(7).dtype, product.result());
}

void shape_of_einsum(ShapeContext& node) {
  std::vector<Shape> shapes;
  for (size_t i = 0; i < node.input_count(); ++i) shapes.push_back(node.input(i).shape);
  const EinsumLabels labels = einsum_labels(node.node(), node.attributes().text("equation"), shapes);
  node.output(0, node.input(0).dtype, labels.shape_of(labels.output));
}

void shape_of_determinant(ShapeContext& node) {
  const Shape& x = node.input(0).shape;
  if (x.back() != x[x.size() - 2]) node.fail("square matrices expected; given " + to_string(x));
  node.output(0, node.input(0).dtype, {x.begin(), x.end() - 2});
}

std::vector<AttributeSchema> conv_attributes() {
  return {text("auto_pad", "NOTSET"),
          optional("dilations", AttributeKind::integers),
          integer("group", 1),
          optional("kernel_shape", AttributeKind::integers),
          optional("pads", AttributeKind::integers),
          optional("strides", AttributeKind::integers)};
}

constexpr DTypeSet kBytes = set_of(DType::int8, DType::uint8), kSums = set_of(DType::int32);  // of quantised products

}  // namespace

Rows contraction_rows() {
  const std::vector<ValueRole> conv_inputs{value("x", kFloats, 'T'), value("w", kFloats, 'T'), optional_value("b", kFloats, 'T')},
      y{value("y", kFloats)};
  auto transpose_attributes = conv_attributes(), window_attributes = conv_attributes();
  std::erase_if(window_attributes, [](const AttributeSchema& attribute) { return attribute.name == "group"; });
  transpose_attributes.push_back(optional("output_padding", AttributeKind::integers));
  transpose_attributes.push_back(optional("output_shape", AttributeKind::integers));
  const std::vector<AttributeSchema> gemm_attributes{real("alpha", 1), real("beta", 1), integer("transA", 0), integer("transB", 0)};
  return {{"Conv", Skeleton::contraction, {conv_inputs, y, conv_attributes(), 3}, shape_of_conv, lower_conv, {}, 0, pack_conv},
          // A convolution over two axes whose images may have their channels in groups of 8 that lie together.
          {"pumice::GroupedConv",
           Skeleton::contraction,
           {conv_inputs, y, window_attributes, 4, 5},
           shape_of_grouped_conv,
           lower_grouped_conv,
           {},
           0,
           pack_grouped_conv},
          {"ConvTranspose",
           Skeleton::contraction,
           {conv_inputs, y, transpose_attributes, 3},
           shape_of_conv_transpose,
           lower_conv_transpose,
           {},
           0,
           pack_conv_transpose},
          {"Gemm",
           Skeleton::contraction,
           {{value("a", kFactors, 'T'), value("b", kFactors, 'T'), optional_value("c", kFactors, 'T')},
            {value("y", kFactors)},
            gemm_attributes,
            2,
            2},
           shape_of_gemm,
           lower_gemm,
           {},
           0,
           pack_gemm},
          {"MatMul",
           Skeleton::contraction,
           {{value("a", kFactors, 'T'), value("b", kFactors, 'T')}, {value("y", kFactors)}, {}, 1},
           shape_of_matmul,
           lower_matmul,
           {},
           0,
           pack_matmul},
          // With a number for each column of a constant matrix.
          {"pumice::MatMul",
           Skeleton::contraction,
           {{value("a", kFloats), value("b", kFloats), value("bias", kFloats)}, {value("y", kFloats)}, {}, 1},
           shape_of_matmul,
           lower_matmul,
           {},
           0,
           pack_matmul},
          // With a matrix [columns, depth] of few bits, and a scale and a zero point for each block of the depth.
          {"pumice::BlockMatMul",
           Skeleton::contraction,
           {{value("a", kFloats), value("w", set_of(DType::int4, DType::uint4, DType::int8, DType::uint8), 'W'), value("scale", kFloats),
             optional_value("zero", set_of(DType::int4, DType::uint4, DType::int8, DType::uint8), 'W')},
            {value("y", kFloats)},
            {required("block_size", AttributeKind::integer)},
            1},
           shape_of_block_matmul,
           lower_block_matmul,
           {},
           0,
           pack_block_matmul},
          {"MatMulInteger",
           Skeleton::contraction,
           {{value("a", kBytes, 'A'), value("b", kBytes, 'B'), optional_value("a_zero_point", kBytes, 'A'),
             optional_value("b_zero_point", kBytes, 'B')},
            {value("y", kSums)},
            {},
            1},
           shape_of_matmul_integer,
           lower_matmul_integer,
           {},
           0,
           pack_matmul_integer},
          {"ConvInteger",
           Skeleton::contraction,
           {{value("x", kBytes, 'T'), value("w", kBytes, 'W'), optional_value("x_zero_point", kBytes, 'T'),
             optional_value("w_zero_point", kBytes, 'W')},
            {value("y", kSums)},
            conv_attributes(),
            3},
           shape_of_conv_integer,
           lower_conv_integer,
           {},
           0,
           pack_conv_integer},
          {"QLinearMatMul",
           Skeleton::contraction,
           {{value("a", kBytes, 'A'), value("a_scale", kFloats), value("a_zero_point", kBytes, 'A'), value("b", kBytes, 'B'),
             value("b_scale", kFloats), value("b_zero_point", kBytes, 'B'), value("y_scale", kFloats), value("y_zero_point", kBytes)},
            {value("y", kBytes)},
            {},
            1},
           shape_of_qlinear_matmul,
           lower_qlinear_matmul,
           {},
           0,
           pack_qlinear_matmul},
          {"QLinearConv",
           Skeleton::contraction,
           {{value("x", kBytes, 'X'), value("x_scale", kFloats), value("x_zero_point", kBytes, 'X'), value("w", kBytes, 'W'),
             value("w_scale", kFloats), value("w_zero_point", kBytes, 'W'), value("y_scale", kFloats), value("y_zero_point", kBytes),
             optional_value("b", kSums)},
            {value("y", kBytes)},
            conv_attributes(),
            3},
           shape_of_qlinear_conv,
           lower_qlinear_conv,
           {},
           0,
           pack_qlinear_conv},
          {"Einsum",
           Skeleton::contraction,
           {{variadic_value("x", kFactors, 'T')}, {value("y", kFactors)}, {required("equation", AttributeKind::text)}},
           shape_of_einsum,
           lower_einsum},
          {"Det", Skeleton::scan, {{value("x", kReals)}, {value("y", kReals)}, {}, 2}, shape_of_determinant, lower_determinant}};
}

}  // namespace pumice

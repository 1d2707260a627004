// Fused operators: convolution with max pooling, GEMM with Softmax.
#include <algorithm>

#include "operators/common/split_axes.h"
#include "operators/conv_gemm/conv_gemm_operators.h"
#include "operators/conv_gemm/conv_gemm_params.h"
#include "operators/conv_gemm/depthwise.h"
#include "operators/conv_gemm/lowerings.h"
#include "operators/geometry/window_geometry.h"
#include "operators/table/flop.h"

namespace pumice {

std::vector<AttributeSchema> make_conv_attributes() {
  return {text_attribute("auto_pad", "NOTSET"),
          optional_attribute("dilations", AttributeKind::integers),
          integer_attribute("group", 1),
          optional_attribute("kernel_shape", AttributeKind::integers),
          optional_attribute("pads", AttributeKind::integers),
          optional_attribute("strides", AttributeKind::integers)};
}

Shape make_image_shape(int64_t batch, int64_t channels, const std::vector<int64_t>& spatial) {
  Shape shape{batch, channels};
  shape.insert(shape.end(), spatial.begin(), spatial.end());
  return shape;
}

void check_groups(const ShapeContext& node, int64_t channels, std::string_view label) {
  const int64_t groups = node.attributes().integer("group", 1);
  if (groups < 1 || channels % groups != 0)
    node.fail(std::to_string(channels) + " " + std::string(label) + " in " + std::to_string(groups) + " groups");
}

Shape compute_conv_shape(ShapeContext& node, size_t weights) {
  const Shape &x = node.input(0).shape, &w = node.input(weights).shape;
  const WindowGeometry geometry = compute_conv_geometry(node.attributes(), node.node(), x, w);
  check_groups(node, w[0], "output channels");
  const int64_t groups = node.attributes().integer("group", 1);
  if (x[1] != w[1] * groups)
    node.fail("an input of " + std::to_string(x[1]) + " channels and a weight of " + std::to_string(w[1]) + " channels in " +
              std::to_string(groups) + " groups");
  return make_image_shape(x[0], w[0], geometry.output);
}

namespace {

// Returns the window of a 2D max pooling with adjacent, unpadded windows; nullopt for other poolings. Incomplete windows are dropped.
std::optional<PoolWindow> get_adjacent_window(const Attributes& max_pool) {
  const auto kernel = max_pool.integers("kernel_shape"), strides = max_pool.integers("strides", {1, 1});
  const auto all = [&](std::string_view name, int64_t value) {
    return std::ranges::all_of(max_pool.integers(name), [&](int64_t each) { return each == value; });
  };
  const std::string padding = max_pool.text("auto_pad", "NOTSET");
  if (kernel.size() != 2 || kernel != strides || kernel[0] * kernel[1] < 2 || !all("dilations", 1)) return {};
  if (max_pool.integer("ceil_mode", 0) != 0 || !all("pads", 0) || (padding != "NOTSET" && padding != "VALID")) return {};
  return PoolWindow{kernel[0], kernel[1]};
}

// Whether the weights are those of a convolution with few channels and several taps, and the windows are small enough to fit into a tile.
bool fits_pooled_conv_kernel(const Attributes& conv, const TensorDesc& weights, const PoolWindow& pool) {
  constexpr int64_t kMaxChannels = 512, kMaxSize = 8;  // maximum of input channels times output channels; maximum side of a window
  if (weights.rank() != 4 || weights.shape[2] * weights.shape[3] < 2) return false;
  // Depthwise convolutions have their own kernel with unpacked weights.
  if (is_depthwise(conv, weights)) return false;
  return weights.shape[0] * weights.shape[1] <= kMaxChannels && pool.rows <= kMaxSize && pool.columns <= kMaxSize;
}

bool is_row_softmax(const NodePair& pair) {
  const int64_t axis = pair.consumer.integer("axis", -1);
  return pair.rank == 2 && (axis == -1 || axis == 1) && pair.consumer_epilogue == "x";
}

// A workgroup multiplies a row by all columns, so the matrix must be small enough to be read by every workgroup.
bool fits_softmax_kernel(const NodePair& pair, bool transposed) {
  constexpr int64_t kMaxColumns = 32, kMaxElements = 1 << 14;
  const TensorDesc& weights = pair.weights;
  if (weights.rank() != 2 || weights.elements() == 0 || weights.elements() > kMaxElements) return false;
  const int64_t columns = weights.shape[transposed ? 0 : 1];
  if (pair.has_bias && (!pair.bias || pair.bias->empty() || pair.bias->back() != columns || element_count(*pair.bias) != columns))
    return false;
  return columns <= kMaxColumns;
}

std::optional<Attributes> match_softmax(const NodePair& pair, bool transposed) {
  if (!is_row_softmax(pair) || !fits_softmax_kernel(pair, transposed)) return {};
  Attributes fused;
  fused.set("transB", int64_t{transposed});
  return fused;
}

}  // namespace

std::optional<Attributes> match_conv_max_pool(const NodePair& pair) {
  const auto window = get_adjacent_window(pair.consumer);
  if (!window || !fits_pooled_conv_kernel(pair.producer, pair.weights, *window)) return {};
  Attributes fused = pair.producer;
  fused.set("pool_shape", std::vector<int64_t>{window->rows, window->columns});
  fused.set("pool_epilogue", std::string(pair.consumer_epilogue));
  return fused;
}

std::optional<Attributes> match_gemm_softmax(const NodePair& pair) {
  const Attributes& gemm = pair.producer;
  if (gemm.integer("transA", 0) != 0 || gemm.real("alpha", 1) != 1 || gemm.real("beta", 1) != 1) return {};
  return match_softmax(pair, gemm.integer("transB", 0) != 0);
}

std::optional<Attributes> match_matmul_softmax(const NodePair& pair) {
  return match_softmax(pair, false);
}

namespace {

void infer_pooled_conv_shape(ShapeContext& node) {
  const Shape conv_output = compute_conv_shape(node, 1);
  check_vector(node, 2, node.input(1).shape[0], "bias");
  const auto sizes = node.attributes().integers("pool_shape");
  if (sizes.size() != 2 || sizes[0] < 1 || sizes[1] < 1) node.fail("expected 'pool_shape' of two positive sizes");
  node.output(0, node.input(0).dtype,
              make_image_shape(conv_output[0], conv_output[1],
                               compute_pool_geometry(make_pool_attributes(node.attributes()), node.node(), conv_output).output));
}

// A pooled convolution can be split along the batch and both spatial axes, because the input area of a pooled element is a window too.
void append_pooled_conv_split_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  append_batch_axis(node, axes);
  WindowGeometry window = compute_conv_geometry(*node.attributes, node.node, node.input(kData).shape, node.input(1).shape);
  const auto sizes = node.attributes->integers("pool_shape");
  for (size_t i = 0; i < sizes.size(); ++i) {
    window.kernel[i] = (sizes[i] - 1) * window.strides[i] + (window.kernel[i] - 1) * window.dilations[i] + 1;
    window.strides[i] *= sizes[i], window.dilations[i] = 1;
  }
  append_window_axes(node, window, axes);
}

// Checks that an input has one value per column, and that all its other axes have size 1.
void check_last_axis(const ShapeContext& node, size_t input, int64_t columns) {
  if (!node.has(input)) return;
  const Shape& shape = node.input(input).shape;
  if (shape.empty() || shape.back() != columns || element_count(shape) != columns)
    node.fail("expected numbers for " + std::to_string(columns) + " columns; given " + to_string(shape));
}

void infer_matmul_softmax_shape(ShapeContext& node) {
  const Shape &a = node.input(0).shape, &b = node.input(1).shape;
  const bool transposed = node.attributes().integer("transB", 0) != 0;
  if (b.size() != 2 || a[1] != b[transposed ? 1 : 0]) node.fail("inner sizes differ: " + to_string(a) + " by " + to_string(b));
  const Shape y{a[0], b[transposed ? 0 : 1]};
  check_last_axis(node, 2, y[1]);
  for (const size_t i : {0, 1}) node.output(i, node.input(0).dtype, y);
}

// Counts the FLOPs of the convolution at every position of the pooling windows, not only at the pooled outputs.
uint64_t count_pooled_conv_flops(const LowerContext& node) {
  uint64_t flop = count_convolution_flops<>(node);
  for (const int64_t size : node.attributes->integers("pool_shape")) flop *= static_cast<uint64_t>(size);
  return flop;
}

void append_row_split_axis(const LowerContext& node, std::vector<SplitAxis>& axes) {
  axes.push_back(make_split_axis(node, 0));
}

}  // namespace

OperatorRows define_fused_conv_gemm_operators() {
  auto pooled_attributes = make_conv_attributes();
  pooled_attributes.push_back(text_attribute("pool_epilogue", "x"));
  pooled_attributes.push_back(required_attribute("pool_shape", AttributeKind::integers));
  const std::vector<ValueRole> conv_inputs{value_role("x", kFloats, 'T'), value_role("w", kFloats, 'T'), optional_role("b", kFloats, 'T')},
      y{value_role("y", kFloats)};
  return {// 2D convolution with max pooling over adjacent windows.
          {.name = "pumice::PooledConv",
           .skeleton = KernelKind::contraction,
           .schema = {.inputs = conv_inputs, .outputs = y, .attributes = pooled_attributes, .min_rank = 4, .max_rank = 4},
           .shape = infer_pooled_conv_shape,
           .lower = lower_pooled_conv,
           .flop = count_pooled_conv_flops,
           .pack = pack_grouped_conv,
           .strides = StrideSupport::image,
           .layout = {.prefers_channels_last = true},
           .split = append_pooled_conv_split_axes,
           .precision = {.half_inputs = 1, .gemm_inputs = 1 | 1 << 1},
           .epilogue = true},
          // A GEMM with small N, followed by a row-wise Softmax. The second output is the matrix product.
          {.name = "pumice::MatMulSoftmax",
           .skeleton = KernelKind::contraction,
           .schema = {.inputs = {value_role("a", kFloats, 'T'), value_role("b", kFloats, 'T'), optional_role("c", kFloats, 'T')},
                      .outputs = {value_role("y", kFloats), optional_role("product", kFloats)},
                      .attributes = {integer_attribute("transB", 0)},
                      .min_rank = 2,
                      .max_rank = 2},
           .shape = infer_matmul_softmax_shape,
           .lower = lower_matmul_softmax,
           .flop = count_gemm_flops,
           .pack = pack_matmul_softmax,
           .strides = StrideSupport::any_in,
           .split = append_row_split_axis,
           .precision = {.half_inputs = 1, .gemm_inputs = 1 | 1 << 1},
           .epilogue = true}};
}

}  // namespace pumice

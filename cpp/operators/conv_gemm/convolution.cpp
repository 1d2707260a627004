// Lowers Conv and ConvTranspose.
#include <algorithm>

#include "core/error.h"
#include "operators/conv_gemm/conv_gemm_dispatch.h"
#include "operators/conv_gemm/depthwise.h"
#include "operators/conv_gemm/halo_tiling.h"
#include "operators/conv_gemm/lowerings.h"
#include "operators/conv_gemm/requantize.h"
#include "operators/conv_gemm/conv3d.h"
#include "operators/geometry/window_geometry.h"
#include "operators/common/composition.h"
#include "operators/common/strided_copy.h"
#include "operators/table/layout.h"

namespace pumice {
namespace {

WeightView conv_weights(const TensorDesc& desc, int64_t groups) {
  int64_t taps = 1;
  for (size_t i = 2; i < desc.shape.size(); ++i) taps *= desc.shape[i];
  const int64_t out = desc.shape[0] / groups, in = desc.shape[1];
  return {groups, out, in, taps, out * in * taps, in * taps, taps, 1};
}

WeightView transposed_weights(const TensorDesc& desc, int64_t groups) {
  int64_t taps = 1;
  for (size_t i = 2; i < desc.shape.size(); ++i) taps *= desc.shape[i];
  const int64_t in = desc.shape[0] / groups, out = desc.shape[1];
  return {groups, out, in, taps, in * out * taps, taps, out * taps, 1};
}

// Values for the last two spatial axes; a single axis is the width.
struct Axes {
  int64_t h, w;
};
Axes axes_of(const std::vector<int64_t>& values, int64_t missing) {
  return values.size() == 1 ? Axes{missing, values[0]} : Axes{values[0], values[1]};
}

int64_t groups_of(const NodeContext& node) {
  return node.attributes->integer("group", 1);
}

void set_groups(const NodeContext& node, Contraction& c) {
  c.x_stride_group = c.weights.channels_in * c.x.sc;
  c.y_stride_group = c.weights.channels_out * c.y.sc;
  c.w_stride_group = packed_group(node, c.weights);
}

}  // namespace

// Whether a convolution extracts non-overlapping patches (as in a ViT) and its channel count is not a multiple of 8. The patches are then
// copied to matrix rows for cooperative matrices.
static bool cuts_patches(const NodeContext& node, const TensorDesc& w) {
  constexpr int64_t kLeastDepth = 64;
  if (!node.has_matrices() || w.rank() != 4 || groups_of(node) != 1 || w.shape[1] % 8 == 0) return false;
  const int64_t depth = w.shape[1] * w.shape[2] * w.shape[3];
  const Attributes& attributes = *node.attributes;
  const auto all = [&](std::string_view name, int64_t value) {
    return std::ranges::all_of(attributes.integers(name), [&](int64_t each) { return each == value; });
  };
  const std::string padding = attributes.text("auto_pad");
  return depth % 8 == 0 && depth >= kLeastDepth && attributes.integers("strides") == std::vector<int64_t>{w.shape[2], w.shape[3]} &&
         all("dilations", 1) && all("pads", 0) && (padding == "NOTSET" || padding == "VALID");
}

// Patch weights, as a convolution with one tap.
static WeightView patch_weights(const TensorDesc& w) {
  const int64_t out = w.shape[0], depth = w.shape[1] * w.shape[2] * w.shape[3];
  return {1, out, depth, 1, out * depth, depth, 1, 1};
}

// Whether patch weights are packed only as fragments: the input shape is known and gemm_mma is fastest. Used by packing and lowering,
// which must agree.
static bool has_patch_fragments(const NodeContext& node, const TensorDesc& w) {
  if (node.shapes.empty() || !node.shapes[0] || !node.has_quads()) return false;
  const WindowGeometry window = conv_geometry(*node.attributes, node.node, *node.shapes[0], w.shape);
  const WeightView weights = patch_weights(w);
  const int64_t patches = node.shapes[0]->front() * window.output[0] * window.output[1];
  return quad_tiling_of(node, patches, weights.channels_out, weights.channels_in).has_value() &&
         block_of_fragments(node, weights, bits(node.float_dtype)) >= weights.channels_out;
}

// Whether weights are packed. 3D and depthwise convolutions read them unpacked.
static bool packs_weights(const PackContext& node) {
  return node.input(1).rank() <= 4 && !is_depthwise(*node.attributes, node.input(1));
}

static bool pack_conv(const PackContext& node, size_t input, bool patches, PackedWeight& packed) {
  if (input == 1 && !packs_weights(node)) return false;
  if (input == 1 && patches && has_patch_fragments(node, node.input(1)))
    pack_fragments(node, node.input(1), patch_weights(node.input(1)), 1, packed);
  else if (input == 1)
    pack_weights(node, input, patches ? patch_weights(node.input(1)) : conv_weights(node.input(1), groups_of(node)), 1, packed);
  if (input == 2) pack_floats(node, input, 1, packed);
  return input == 1 || input == 2;
}

// Whether a second copy of the weights in fragment order follows the packed weights, for conv_halo and gemm_mma: if such a kernel is
// the fastest, if the input shape is unknown, if variants are being measured, or if such a variant was measured to be the fastest. Used by
// packing and lowering, which must agree.
static bool holds_fragments(const NodeContext& node, const TensorDesc& w) {
  if (node.shapes.empty() || !can_hold_fragments(node, conv_weights(w, groups_of(node)))) return false;
  const auto reads_them = [](const auto& one) { return one.second.starts_with("conv_halo") || one.second.starts_with("conv_quads"); };
  if (!node.shapes[0] || (node.measured && (node.measured->lists || std::ranges::any_of(node.measured->taken, reads_them)))) return true;
  const WindowGeometry window = conv_geometry(*node.attributes, node.node, *node.shapes[0], w.shape);
  const Axes size = axes_of(window.output, 1);
  const MadeImages made{node.shapes[0]->front(), size.h, size.w, w.shape[1], w.shape[0]};
  return quick_halo(made) || quick_quads(node, made, conv_weights(w, groups_of(node)).taps);
}

// Sets the offsets of the second copy in fragment order.
static void find_fragments(const NodeContext& node, Contraction& c) {
  c.fragments = first_fragment(node, c.weights);
  if (can_spread(c.weights, c.taps_w)) c.spread = round_up(c.fragments + fragment_elements(c.weights), kFragmentsBoundary);
}

// Appends that copy to the packed weights.
static void add_fragments(const PackContext& node, const WeightView& weights, int64_t width, PackedWeight& packed) {
  Contraction c{{}, {}, weights, 0, 0};
  c.taps_w = width;
  find_fragments(node, c);
  PackedWeight fragments, spread;
  pack_fragments(node, node.input(1), weights, 1, fragments);
  if (c.spread > 0) pack_spread(node, node.input(1), weights, width, spread);
  const int64_t end = c.spread > 0 ? c.spread + spread_elements(weights, width) : c.fragments + fragment_elements(weights);
  packed.desc = TensorDesc(packed.desc.dtype, {end});
  packed.steps = [c, rows = packed.steps, fragments = fragments.steps, spread = spread.steps](
                     std::vector<Step>& steps, const Operand& source, const Operand& target) {
    const auto from = [&](int64_t first) {
      Operand part = target;
      part.byte_offset += static_cast<uint64_t>(first) * 2;
      return part;
    };
    rows(steps, source, target);
    fragments(steps, source, from(c.fragments));
    if (spread) spread(steps, source, from(c.spread));
  };
}

bool pack_conv(const PackContext& node, size_t input, PackedWeight& packed) {
  const bool patches = input == 1 && cuts_patches(node, node.input(1));
  if (!pack_conv(node, input, patches, packed)) return false;
  if (input != 1 || patches) return true;
  if (holds_fragments(node, node.input(1)))
    add_fragments(node, conv_weights(node.input(1), groups_of(node)), node.input(1).shape.back(), packed);
  return true;
}

bool pack_grouped_conv(const PackContext& node, size_t input, PackedWeight& packed) {
  return pack_conv(node, input, false, packed);
}

static void add_patches(LowerContext& node) {
  const TensorDesc &x = node.input(0), &w = node.input(1);
  const Planes from = planes_of(node, x), y = planes_of(node, node.output(0));
  const int64_t depth = w.shape[1] * w.shape[2] * w.shape[3];
  const Shape shape{y.n, y.h, y.w, from.c, w.shape[2], w.shape[3]};
  const Planes patches{y.n, depth, y.h, y.w, y.h * y.w * depth, 1, y.w * depth, depth};
  const Operand rows = node.temporary(buffer_size(x.dtype, shape));
  add_strided_copy(node, x.dtype,
                   {shape, {{from.sn, from.sh * w.shape[2], from.sw * w.shape[3], from.sc, from.sh, from.sw}, packed_strides(shape)}},
                   {node.in(0)}, {rows});
  Contraction c{patches, y, patch_weights(w), y.h, y.w};
  c.tap_row = c.tap_column = 1;
  c.padded = true;  // starts at a boundary, padded to multiples of 8
  if (has_packed_weights(node) && has_patch_fragments(node, w)) c.order = WeightOrder::fragments;
  add_contraction(node, c, rows, node.packed(1), bias_of(node), node.out(0));
}

// Describes a 1D or 2D convolution as a contraction.
static Contraction conv_contraction(const LowerContext& node, const WindowGeometry& window, const Planes& x, const Planes& y,
                                    const TensorDesc& w) {
  Contraction c{x, y, conv_weights(w, groups_of(node)), 0, 0};
  const Axes kernel = axes_of(window.kernel, 1), steps = axes_of(window.strides, 1), dilations = axes_of(window.dilations, 1),
             pads = axes_of(window.pads_begin, 0);
  c.out_h = c.y.h, c.out_w = c.y.w;
  c.in_step_h = steps.h, c.in_step_w = steps.w, c.tap_step_h = dilations.h, c.tap_step_w = dilations.w;
  c.base_h = -pads.h, c.base_w = -pads.w;
  c.taps_h = kernel.h, c.taps_w = kernel.w, c.tap_row = kernel.w, c.tap_column = 1;
  set_groups(node, c);
  return c;
}

void lower_conv(LowerContext& node) {
  check_volume(node);
  const WindowGeometry window = conv_geometry(*node.attributes, node.node, node.input(0).shape, node.input(1).shape);
  if (node.input(0).rank() == 5)
    return add_volume_conv(node, {window, node.input(0), node.input(1), node.output(0), false, {}}, node.in(1), bias_of(node), node.out(0));
  if (is_depthwise(*node.attributes, node.input(1))) return add_depthwise(node, window, bias_of(node));
  if (cuts_patches(node, node.input(1))) return add_patches(node);
  Contraction c = conv_contraction(node, window, planes_of(node, node.input(0)), planes_of(node, node.output(0)), node.input(1));
  if (has_packed_weights(node) && holds_fragments(node, node.input(1))) find_fragments(node, c);
  const Operand weights = node.packed(1);
  add_contraction(node, c, node.in(0), weights, bias_of(node), node.out(0));
}

Attributes pooling_of(const Attributes& attributes) {
  Attributes made;
  for (const char* name : {"kernel_shape", "strides"}) made.set(name, attributes.integers("pool_shape"));
  return made;
}

// Lowers a convolution followed by max pooling, with a fused kernel or a separate pooling.
void lower_pooled_conv(LowerContext& node) {
  const TensorDesc &x = node.input(0), &w = node.input(1), &y = node.output(0);
  const WindowGeometry window = conv_geometry(*node.attributes, node.node, x.shape, w.shape);
  const auto sizes = node.attributes->integers("pool_shape");
  Contraction c = conv_contraction(node, window, planes_of(node, x), planes_of(node, y), w);
  c.pool = {sizes[0], sizes[1]};
  c.out_h *= c.pool.rows, c.out_w *= c.pool.columns;  // computes only the pooled area
  const Operand weights = node.packed(1);
  const ContractionBias bias = bias_of(node);
  if (add_pooled_contraction(node, c, node.in(0), weights, bias, node.out(0))) return;
  TensorDesc made(y.dtype, {y.shape[0], y.shape[1], window.output[0], window.output[1]});
  if (suits_channels_last(made.dtype, made.shape)) made.strides = channels_last_strides(made.shape);
  Operand between = node.temporary(made.bytes());
  between.element_bits = static_cast<uint32_t>(bits(made.dtype));
  add_contraction(node, conv_contraction(node, window, planes_of(node, x), planes_of(node, made), w), node.in(0), weights, bias, between);
  Composition(node).add("MaxPool", pooling_of(*node.attributes), {{made, between}}, {y, node.out(0)},
                        node.attributes->text("pool_epilogue", "x"));
}

// Returns the planes of a tensor with channels blocked by 8, [N, C/8, 8, ..], or plain, [N, C, ..].
static Planes grouped_planes(const LowerContext& node, const TensorDesc& desc) {
  if (desc.rank() == 4) return planes_of(node, desc);
  const auto &shape = desc.shape, &strides = desc.strides;
  if (strides[2] != 1)
    throw UnsupportedError("node '" + std::string(node.node) + "': channels of a group that do not lie together, " + to_string(desc));
  return {shape[0], shape[1] * shape[2], shape[3], shape[4], strides[0], strides[1], strides[3], strides[4], true};
}

void lower_grouped_conv(LowerContext& node) {
  const Planes x = grouped_planes(node, node.input(0)), y = grouped_planes(node, node.output(0));
  const TensorDesc& w = node.input(1);
  const WindowGeometry window = conv_geometry(*node.attributes, node.node, {x.n, x.c, x.h, x.w}, w.shape);
  const Contraction c = conv_contraction(node, window, x, y, w);
  const Operand weights = node.packed(1);
  add_contraction(node, c, node.in(0), weights, bias_of(node), node.out(0));
}

// Inputs of an integer convolution other than x, which is input 0; 0 if absent.
struct ConvInputs {
  size_t w, x_zero, w_zero, bias;
};
static constexpr ConvInputs kConvInteger{1, 2, 3, 0}, kQLinearConv{3, 2, 5, 8};

static bool pack_conv_integers(const PackContext& node, const ConvInputs& inputs, size_t input, PackedWeight& packed) {
  if (input == inputs.x_zero) {
    pack_integers(node, input, 1, packed);
    return true;
  }
  const bool by_channel = input == inputs.w_zero || (inputs.bias != 0 && input == inputs.bias);
  if ((input != inputs.w && !by_channel) || !node.inputs[inputs.w]) return false;
  const TensorDesc& w = node.input(inputs.w);
  if (by_channel)
    pack_integers(node, input, w.shape[0], packed);
  else if (w.rank() <= 4)
    pack_integer_weights(node, w, conv_weights(w, groups_of(node)), packed);
  return by_channel || w.rank() <= 4;
}

bool pack_conv_integer(const PackContext& node, size_t input, PackedWeight& packed) {
  return pack_conv_integers(node, kConvInteger, input, packed);
}

bool pack_qlinear_conv(const PackContext& node, size_t input, PackedWeight& packed) {
  if (pack_conv_integers(node, kQLinearConv, input, packed)) return true;
  return pack_requantized(node, input, packed);
}

// Adds an integer convolution. `y` receives row-major int32 sums.
static void add_conv_integers(LowerContext& node, const ConvInputs& inputs, const TensorDesc& y_desc, const Operand& y) {
  check_volume(node);
  const TensorDesc &x = node.input(0), &w = node.input(inputs.w);
  const WindowGeometry window = conv_geometry(*node.attributes, node.node, x.shape, w.shape);
  IntegerTerms integers{x.dtype, w.dtype, zero_points(node, inputs.x_zero), zero_points(node, inputs.w_zero)};
  ContractionBias bias;
  if (inputs.bias != 0 && node.has_input(inputs.bias)) bias = {ContractionBias::Kind::channels, node.packed(inputs.bias)};
  const Operand weights = node.packed(inputs.w);
  if (x.rank() == 5) return add_volume_conv(node, {window, x, w, y_desc, false, integers}, weights, bias, y);
  Contraction c = conv_contraction(node, window, planes_of(node, x), planes_of(node, y_desc), w);
  c.integers = std::move(integers);
  add_contraction(node, c, node.in(0), weights, bias, y);
}

void lower_conv_integer(LowerContext& node) {
  add_conv_integers(node, kConvInteger, node.output(0), node.out(0));
}

void lower_qlinear_conv(LowerContext& node) {
  const TensorDesc sums(DType::int32, node.output(0).shape);
  const Operand made = node.temporary(sums.bytes());
  add_conv_integers(node, kQLinearConv, sums, made);
  Strides channel(sums.shape.size(), 0);
  const Strides all = channel;
  if (node.input(4).elements() != 1) channel[1] = 1;
  add_requantize(node, made, sums.shape, all, channel, all);
}

// Whether a transposed convolution is split into phases, one contraction per position within the strides. With three axes or very many
// phases, every output finds its taps instead, and the weights stay unpacked.
static bool has_phases(const NodeContext& node, const TensorDesc& w) {
  constexpr int64_t kMostPhases = 4096;
  if (w.rank() > 4) return false;
  int64_t phases = 1;
  for (const int64_t stride : node.attributes->integers("strides"))
    if (phases <= kMostPhases) phases *= std::min(stride, kMostPhases + 1);
  return phases <= kMostPhases;
}

bool pack_conv_transpose(const PackContext& node, size_t input, PackedWeight& packed) {
  if (input == 1 && !has_phases(node, node.input(1))) return false;
  if (input == 1) pack_weights(node, input, transposed_weights(node.input(1), groups_of(node)), 1, packed);
  if (input == 2) pack_floats(node, input, 1, packed);
  return input == 1 || input == 2;
}

// One axis of a phase: outputs first, first + stride, .. use the taps tap, tap + tap_step, ..
struct Phase {
  int64_t outputs, taps, tap, tap_step, in_step, base;
};

// Output o = phase + stride * i uses tap k if (o + pad - k * dilation) is a multiple of the stride; the quotient is the input index.
static Phase phase_of(int64_t phase, int64_t output, int64_t stride, int64_t dilation, int64_t pad, int64_t kernel) {
  Phase result{output > phase ? (output - phase + stride - 1) / stride : 0, 0, 0, 1, 0, 0};
  for (int64_t k = 0; k < kernel; ++k) {
    if ((phase + pad - k * dilation) % stride != 0) continue;
    if (result.taps == 0) {
      result.tap = k;
      result.base = (phase + pad - k * dilation) / stride;
    } else if (result.taps == 1) {
      result.tap_step = k - result.tap;
      result.in_step = -result.tap_step * dilation / stride;
    }
    ++result.taps;
  }
  return result;
}

void lower_conv_transpose(LowerContext& node) {
  check_volume(node);
  const WindowGeometry window = conv_transpose_geometry(*node.attributes, node.node, node.input(0).shape, node.input(1).shape);
  if (!has_phases(node, node.input(1)))
    return add_volume_conv(node, {window, node.input(0), node.input(1), node.output(0), true, {}}, node.in(1), bias_of(node), node.out(0));
  Contraction c{planes_of(node, node.input(0)), planes_of(node, node.output(0)), transposed_weights(node.input(1), groups_of(node)), 0, 0};
  const Axes kernel = axes_of(window.kernel, 1), steps = axes_of(window.strides, 1), dilations = axes_of(window.dilations, 1),
             pads = axes_of(window.pads_begin, 0);
  set_groups(node, c);
  const Operand weights = node.packed(1);
  const ContractionBias bias = bias_of(node);
  for (int64_t h = 0; h < steps.h; ++h) {
    for (int64_t w = 0; w < steps.w; ++w) {
      const Phase rows = phase_of(h, c.y.h, steps.h, dilations.h, pads.h, kernel.h),
                  columns = phase_of(w, c.y.w, steps.w, dilations.w, pads.w, kernel.w);
      Contraction part = c;
      part.out_h = rows.outputs, part.out_w = columns.outputs;
      part.tap_step_h = rows.in_step, part.tap_step_w = columns.in_step;
      part.base_h = rows.base, part.base_w = columns.base;
      part.taps_h = rows.taps, part.taps_w = columns.taps;
      part.tap_first = rows.tap * kernel.w + columns.tap, part.tap_row = rows.tap_step * kernel.w, part.tap_column = columns.tap_step;
      part.y_first = h * c.y.sh + w * c.y.sw;
      part.y.sh *= steps.h, part.y.sw *= steps.w;
      Operand y = node.out(0);
      y.part = static_cast<uint32_t>(h * steps.w + w + 1);
      add_contraction(node, part, node.in(0), weights, bias, y);
    }
  }
}

}  // namespace pumice

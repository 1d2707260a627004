// Lowers Conv and ConvTranspose.
#include <algorithm>

#include "core/error.h"
#include "operators/common/composite_lowering.h"
#include "operators/common/strided_copy.h"
#include "operators/conv_gemm/conv3d.h"
#include "operators/conv_gemm/conv_gemm_dispatch.h"
#include "operators/conv_gemm/depthwise.h"
#include "operators/conv_gemm/halo_tiling.h"
#include "operators/conv_gemm/lowerings.h"
#include "operators/conv_gemm/requantize.h"
#include "operators/geometry/window_geometry.h"
#include "operators/table/value_layout.h"

namespace pumice {
namespace {

WeightView view_conv_weights(const TensorDesc& desc, int64_t groups) {
  int64_t taps = 1;
  for (size_t i = 2; i < desc.shape.size(); ++i) taps *= desc.shape[i];
  const int64_t out = desc.shape[0] / groups, in = desc.shape[1];
  return {groups, out, in, taps, out * in * taps, in * taps, taps, 1};
}

WeightView view_transposed_weights(const TensorDesc& desc, int64_t groups) {
  int64_t taps = 1;
  for (size_t i = 2; i < desc.shape.size(); ++i) taps *= desc.shape[i];
  const int64_t in = desc.shape[0] / groups, out = desc.shape[1];
  return {groups, out, in, taps, in * out * taps, taps, out * taps, 1};
}

// One value per spatial axis (height and width). With a single spatial axis, that axis is the width.
struct SpatialAxes {
  int64_t h, w;
};
SpatialAxes get_spatial_axes(const std::vector<int64_t>& values, int64_t missing) {
  return values.size() == 1 ? SpatialAxes{missing, values[0]} : SpatialAxes{values[0], values[1]};
}

int64_t get_num_groups(const NodeContext& node) {
  return node.attributes->integer("group", 1);
}

void set_group_strides(const NodeContext& node, ConvGemmParams& c) {
  c.x_stride_group = c.weights.channels_in * c.x.sc;
  c.y_stride_group = c.weights.channels_out * c.y.sc;
  c.w_stride_group = count_packed_elements_per_group(node, c.weights);
}

}  // namespace

// Whether a convolution is a patch embedding (non-overlapping patches, as in a ViT) with a channel count that is not a multiple of 8. The
// patches are then copied to matrix rows, which cooperative matrices can read.
static bool is_patch_embedding(const NodeContext& node, const TensorDesc& w) {
  constexpr int64_t kMinK = 64;
  if (!node.has_coopmat() || w.rank() != 4 || get_num_groups(node) != 1 || w.shape[1] % 8 == 0) return false;
  const int64_t patch_k = w.shape[1] * w.shape[2] * w.shape[3];
  const Attributes& attributes = *node.attributes;
  const auto all = [&](std::string_view name, int64_t value) {
    return std::ranges::all_of(attributes.integers(name), [&](int64_t each) { return each == value; });
  };
  const std::string padding = attributes.text("auto_pad");
  return patch_k % 8 == 0 && patch_k >= kMinK && attributes.integers("strides") == std::vector<int64_t>{w.shape[2], w.shape[3]} &&
         all("dilations", 1) && all("pads", 0) && (padding == "NOTSET" || padding == "VALID");
}

// Views the weights of a patch embedding as the weights of a convolution with one tap.
static WeightView view_patch_weights(const TensorDesc& w) {
  const int64_t out = w.shape[0], patch_k = w.shape[1] * w.shape[2] * w.shape[3];
  return {1, out, patch_k, 1, out * patch_k, patch_k, 1, 1};
}

// Whether the weights of a patch embedding are packed only in fragment order: the input shape is known, and gemm_mma is the fastest kernel.
// Packing and lowering both call this, because they must agree.
static bool has_patch_fragments(const NodeContext& node, const TensorDesc& w) {
  if (node.shapes.empty() || !node.shapes[0] || !node.has_mma()) return false;
  const WindowGeometry window = compute_conv_geometry(*node.attributes, node.node, *node.shapes[0], w.shape);
  const WeightView weights = view_patch_weights(w);
  const int64_t patches = node.shapes[0]->front() * window.output[0] * window.output[1];
  return select_mma_tiling(node, patches, weights.channels_out, weights.channels_in).has_value() &&
         get_columns_per_binding(node, weights, bits(node.float_dtype)) >= weights.channels_out;
}

// Whether weights are packed. 3D and depthwise convolutions read them unpacked.
static bool needs_packed_weights(const PackContext& node) {
  return node.input(1).rank() <= 4 && !is_depthwise(*node.attributes, node.input(1));
}

static bool pack_conv(const PackContext& node, size_t input, bool patches, PackedWeight& packed) {
  if (input == 1 && !needs_packed_weights(node)) return false;
  if (input == 1 && patches && has_patch_fragments(node, node.input(1)))
    pack_fragments(node, node.input(1), view_patch_weights(node.input(1)), 1, packed);
  else if (input == 1)
    pack_weights(node, input, patches ? view_patch_weights(node.input(1)) : view_conv_weights(node.input(1), get_num_groups(node)), 1,
                 packed);
  if (input == 2) pack_as_float32(node, input, 1, packed);
  return input == 1 || input == 2;
}

// Whether a second copy of the weights, in fragment order for conv_halo and gemm_mma, follows the packed weights. This is so if
// - one of these kernels is the fastest by default or was measured to be the fastest,
// - the input shape is unknown, or
// - variants are being measured.
// Packing and lowering both call this, because they must agree.
static bool has_fragment_copy(const NodeContext& node, const TensorDesc& w) {
  if (node.shapes.empty() || !fits_fragment_copy(node, view_conv_weights(w, get_num_groups(node)))) return false;
  const auto uses_fragments = [](const auto& entry) {
    return entry.second.starts_with("conv_halo") || entry.second.starts_with("conv_mma");
  };
  if (!node.shapes[0] || (node.measured && (node.measured->lists_all || std::ranges::any_of(node.measured->fastest, uses_fragments))))
    return true;
  const WindowGeometry window = compute_conv_geometry(*node.attributes, node.node, *node.shapes[0], w.shape);
  const SpatialAxes size = get_spatial_axes(window.output, 1);
  const ConvOutputSize out_size{node.shapes[0]->front(), size.h, size.w, w.shape[1], w.shape[0]};
  return choose_fastest_halo_tiling(out_size) || choose_fastest_mma_tiling(node, out_size, view_conv_weights(w, get_num_groups(node)).taps);
}

// Sets the offsets of the second copy of the weights, which is in fragment order.
static void set_fragment_offsets(const NodeContext& node, ConvGemmParams& c) {
  c.fragments = get_fragment_copy_offset(node, c.weights);
  if (can_fold_taps(c.weights, c.taps_w)) c.folded_taps = round_up(c.fragments + count_fragment_elements(c.weights), kFragmentAlignment);
}

// Appends a copy of the weights in fragment order to the packed weights.
static void append_fragment_copy(const PackContext& node, const WeightView& weights, int64_t width, PackedWeight& packed) {
  ConvGemmParams c{{}, {}, weights, 0, 0};
  c.taps_w = width;
  set_fragment_offsets(node, c);
  PackedWeight fragments, folded_taps;
  pack_fragments(node, node.input(1), weights, 1, fragments);
  if (c.folded_taps > 0) pack_folded_taps(node, node.input(1), weights, width, folded_taps);
  const int64_t end =
      c.folded_taps > 0 ? c.folded_taps + count_folded_tap_elements(weights, width) : c.fragments + count_fragment_elements(weights);
  packed.desc = TensorDesc(packed.desc.dtype, {end});
  packed.steps = [c, rows = packed.steps, fragments = fragments.steps, folded_taps = folded_taps.steps](
                     std::vector<Step>& steps, const Operand& source, const Operand& target) {
    const auto from = [&](int64_t first) {
      Operand shifted = target;
      shifted.byte_offset += static_cast<uint64_t>(first) * 2;
      return shifted;
    };
    rows(steps, source, target);
    fragments(steps, source, from(c.fragments));
    if (folded_taps) folded_taps(steps, source, from(c.folded_taps));
  };
}

bool pack_conv(const PackContext& node, size_t input, PackedWeight& packed) {
  const bool patches = input == 1 && is_patch_embedding(node, node.input(1));
  if (!pack_conv(node, input, patches, packed)) return false;
  if (input != 1 || patches) return true;
  if (has_fragment_copy(node, node.input(1)))
    append_fragment_copy(node, view_conv_weights(node.input(1), get_num_groups(node)), node.input(1).shape.back(), packed);
  return true;
}

bool pack_grouped_conv(const PackContext& node, size_t input, PackedWeight& packed) {
  return pack_conv(node, input, false, packed);
}

static void add_patch_embedding(LowerContext& node) {
  const TensorDesc &x = node.input(0), &w = node.input(1);
  const NchwView from = make_nchw_view(node, x), y = make_nchw_view(node, node.output(0));
  const int64_t patch_k = w.shape[1] * w.shape[2] * w.shape[3];
  const Shape shape{y.n, y.h, y.w, from.c, w.shape[2], w.shape[3]};
  const NchwView patches{y.n, patch_k, y.h, y.w, y.h * y.w * patch_k, 1, y.w * patch_k, patch_k};
  const Operand rows = node.add_temporary(buffer_size(x.dtype, shape));
  add_strided_copy(node, x.dtype,
                   {shape, {{from.sn, from.sh * w.shape[2], from.sw * w.shape[3], from.sc, from.sh, from.sw}, packed_strides(shape)}},
                   {node.input_operand(0)}, {rows});
  ConvGemmParams c{patches, y, view_patch_weights(w), y.h, y.w};
  c.tap_row = c.tap_column = 1;
  c.padded = true;  // rows start at 16-byte boundaries; patch_k is a multiple of 8
  if (has_packed_weights(node) && has_patch_fragments(node, w)) c.order = WeightOrder::fragments;
  add_conv_gemm(node, c, rows, node.get_packed_input(1), get_packed_bias(node), node.output_operand(0));
}

// Returns the parameters of a 1D or 2D convolution.
static ConvGemmParams make_conv_gemm(const LowerContext& node, const WindowGeometry& window, const NchwView& x, const NchwView& y,
                                     const TensorDesc& w) {
  ConvGemmParams c{x, y, view_conv_weights(w, get_num_groups(node)), 0, 0};
  const SpatialAxes kernel = get_spatial_axes(window.kernel, 1), steps = get_spatial_axes(window.strides, 1),
                    dilations = get_spatial_axes(window.dilations, 1), pads = get_spatial_axes(window.pads_begin, 0);
  c.out_h = c.y.h, c.out_w = c.y.w;
  c.in_step_h = steps.h, c.in_step_w = steps.w, c.tap_step_h = dilations.h, c.tap_step_w = dilations.w;
  c.base_h = -pads.h, c.base_w = -pads.w;
  c.taps_h = kernel.h, c.taps_w = kernel.w, c.tap_row = kernel.w, c.tap_column = 1;
  set_group_strides(node, c);
  return c;
}

void lower_conv(LowerContext& node) {
  check_spatial_rank(node);
  const WindowGeometry window = compute_conv_geometry(*node.attributes, node.node, node.input(0).shape, node.input(1).shape);
  if (node.input(0).rank() == 5)
    return add_conv3d(node, {window, node.input(0), node.input(1), node.output(0), false, {}}, node.input_operand(1), get_packed_bias(node),
                      node.output_operand(0));
  if (is_depthwise(*node.attributes, node.input(1))) return add_depthwise(node, window, get_packed_bias(node));
  if (is_patch_embedding(node, node.input(1))) return add_patch_embedding(node);
  ConvGemmParams c = make_conv_gemm(node, window, make_nchw_view(node, node.input(0)), make_nchw_view(node, node.output(0)), node.input(1));
  if (has_packed_weights(node) && has_fragment_copy(node, node.input(1))) set_fragment_offsets(node, c);
  const Operand weights = node.get_packed_input(1);
  add_conv_gemm(node, c, node.input_operand(0), weights, get_packed_bias(node), node.output_operand(0));
}

Attributes make_pool_attributes(const Attributes& attributes) {
  Attributes pool_attrs;
  for (const char* name : {"kernel_shape", "strides"}) pool_attrs.set(name, attributes.integers("pool_shape"));
  return pool_attrs;
}

// Lowers a convolution followed by max pooling, with a fused kernel or a separate pooling.
void lower_pooled_conv(LowerContext& node) {
  const TensorDesc &x = node.input(0), &w = node.input(1), &y = node.output(0);
  const WindowGeometry window = compute_conv_geometry(*node.attributes, node.node, x.shape, w.shape);
  const auto sizes = node.attributes->integers("pool_shape");
  ConvGemmParams c = make_conv_gemm(node, window, make_nchw_view(node, x), make_nchw_view(node, y), w);
  c.pool = {sizes[0], sizes[1]};
  c.out_h *= c.pool.rows, c.out_w *= c.pool.columns;  // computes only the pooled area
  const Operand weights = node.get_packed_input(1);
  const ConvGemmBias bias = get_packed_bias(node);
  if (add_pooled_conv(node, c, node.input_operand(0), weights, bias, node.output_operand(0))) return;
  TensorDesc conv_desc(y.dtype, {y.shape[0], y.shape[1], window.output[0], window.output[1]});
  if (fits_channels_last(conv_desc.dtype, conv_desc.shape)) conv_desc.strides = make_channels_last_strides(conv_desc.shape);
  Operand conv_out = node.add_temporary(conv_desc.bytes());
  conv_out.element_bits = static_cast<uint32_t>(bits(conv_desc.dtype));
  add_conv_gemm(node, make_conv_gemm(node, window, make_nchw_view(node, x), make_nchw_view(node, conv_desc), w), node.input_operand(0),
                weights, bias, conv_out);
  CompositeLowering(node).add_operator("MaxPool", make_pool_attributes(*node.attributes), {{conv_desc, conv_out}},
                                       {y, node.output_operand(0)}, node.attributes->text("pool_epilogue", "x"));
}

// Views a tensor whose channels are in blocks of 8, [N, C / 8, 8, ..], or plain, [N, C, ..], as NCHW.
static NchwView make_blocked_view(const LowerContext& node, const TensorDesc& desc) {
  if (desc.rank() == 4) return make_nchw_view(node, desc);
  const auto &shape = desc.shape, &strides = desc.strides;
  if (strides[2] != 1)
    throw UnsupportedError("node '" + std::string(node.node) + "': channels of a group that are not contiguous, " + to_string(desc));
  return {shape[0], shape[1] * shape[2], shape[3], shape[4], strides[0], strides[1], strides[3], strides[4], true};
}

void lower_grouped_conv(LowerContext& node) {
  const NchwView x = make_blocked_view(node, node.input(0)), y = make_blocked_view(node, node.output(0));
  const TensorDesc& w = node.input(1);
  const WindowGeometry window = compute_conv_geometry(*node.attributes, node.node, {x.n, x.c, x.h, x.w}, w.shape);
  const ConvGemmParams c = make_conv_gemm(node, window, x, y, w);
  const Operand weights = node.get_packed_input(1);
  add_conv_gemm(node, c, node.input_operand(0), weights, get_packed_bias(node), node.output_operand(0));
}

// Input indices of an integer convolution; 0: absent. x is always input 0.
struct Int8ConvInputs {
  size_t w, x_zero, w_zero, bias;
};
static constexpr Int8ConvInputs kConvInteger{1, 2, 3, 0}, kQLinearConv{3, 2, 5, 8};

static bool pack_int8_conv(const PackContext& node, const Int8ConvInputs& inputs, size_t input, PackedWeight& packed) {
  if (input == inputs.x_zero) {
    pack_as_int32(node, input, 1, packed);
    return true;
  }
  const bool by_channel = input == inputs.w_zero || (inputs.bias != 0 && input == inputs.bias);
  if ((input != inputs.w && !by_channel) || !node.inputs[inputs.w]) return false;
  const TensorDesc& w = node.input(inputs.w);
  if (by_channel)
    pack_as_int32(node, input, w.shape[0], packed);
  else if (w.rank() <= 4)
    pack_integer_weights(node, w, view_conv_weights(w, get_num_groups(node)), packed);
  return by_channel || w.rank() <= 4;
}

bool pack_conv_integer(const PackContext& node, size_t input, PackedWeight& packed) {
  return pack_int8_conv(node, kConvInteger, input, packed);
}

bool pack_qlinear_conv(const PackContext& node, size_t input, PackedWeight& packed) {
  if (pack_int8_conv(node, kQLinearConv, input, packed)) return true;
  return pack_requantize_params(node, input, packed);
}

// Adds an integer convolution. `y` receives row-major int32 sums.
static void add_int8_conv(LowerContext& node, const Int8ConvInputs& inputs, const TensorDesc& y_desc, const Operand& y) {
  check_spatial_rank(node);
  const TensorDesc &x = node.input(0), &w = node.input(inputs.w);
  const WindowGeometry window = compute_conv_geometry(*node.attributes, node.node, x.shape, w.shape);
  Int8Params integers{x.dtype, w.dtype, get_zero_points(node, inputs.x_zero), get_zero_points(node, inputs.w_zero)};
  ConvGemmBias bias;
  if (inputs.bias != 0 && node.has_input(inputs.bias)) bias = {ConvGemmBias::BiasKind::channels, node.get_packed_input(inputs.bias)};
  const Operand weights = node.get_packed_input(inputs.w);
  if (x.rank() == 5) return add_conv3d(node, {window, x, w, y_desc, false, integers}, weights, bias, y);
  ConvGemmParams c = make_conv_gemm(node, window, make_nchw_view(node, x), make_nchw_view(node, y_desc), w);
  c.integers = std::move(integers);
  add_conv_gemm(node, c, node.input_operand(0), weights, bias, y);
}

void lower_conv_integer(LowerContext& node) {
  add_int8_conv(node, kConvInteger, node.output(0), node.output_operand(0));
}

void lower_qlinear_conv(LowerContext& node) {
  const TensorDesc sums(DType::int32, node.output(0).shape);
  const Operand accumulators = node.add_temporary(sums.bytes());
  add_int8_conv(node, kQLinearConv, sums, accumulators);
  Strides channel(sums.shape.size(), 0);
  const Strides all = channel;
  if (node.input(4).elements() != 1) channel[1] = 1;
  add_requantize(node, accumulators, sums.shape, all, channel, all);
}

// Whether a transposed convolution is split into phases: one convolution for each output position modulo the strides. With three spatial
// axes or very many phases it is not; each output then searches for its taps, and the weights stay unpacked.
static bool splits_into_phases(const NodeContext& node, const TensorDesc& w) {
  constexpr int64_t kMaxPhases = 4096;
  if (w.rank() > 4) return false;
  int64_t phases = 1;
  for (const int64_t stride : node.attributes->integers("strides"))
    if (phases <= kMaxPhases) phases *= std::min(stride, kMaxPhases + 1);
  return phases <= kMaxPhases;
}

bool pack_conv_transpose(const PackContext& node, size_t input, PackedWeight& packed) {
  if (input == 1 && !splits_into_phases(node, node.input(1))) return false;
  if (input == 1) pack_weights(node, input, view_transposed_weights(node.input(1), get_num_groups(node)), 1, packed);
  if (input == 2) pack_as_float32(node, input, 1, packed);
  return input == 1 || input == 2;
}

// A phase of a transposed convolution along one axis. Outputs first, first + stride, .. use the taps tap, tap + tap_step, ..
struct ConvTransposePhase {
  int64_t outputs, taps, tap, tap_step, in_step, base;
};

// Output o = phase + stride * i uses tap k if o + pad - k * dilation is a multiple of the stride. The quotient is the input index.
static ConvTransposePhase make_conv_transpose_phase(int64_t phase, int64_t output, int64_t stride, int64_t dilation, int64_t pad,
                                                    int64_t kernel) {
  ConvTransposePhase result{output > phase ? (output - phase + stride - 1) / stride : 0, 0, 0, 1, 0, 0};
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
  check_spatial_rank(node);
  const WindowGeometry window = compute_conv_transpose_geometry(*node.attributes, node.node, node.input(0).shape, node.input(1).shape);
  if (!splits_into_phases(node, node.input(1)))
    return add_conv3d(node, {window, node.input(0), node.input(1), node.output(0), true, {}}, node.input_operand(1), get_packed_bias(node),
                      node.output_operand(0));
  ConvGemmParams c{make_nchw_view(node, node.input(0)), make_nchw_view(node, node.output(0)),
                   view_transposed_weights(node.input(1), get_num_groups(node)), 0, 0};
  const SpatialAxes kernel = get_spatial_axes(window.kernel, 1), steps = get_spatial_axes(window.strides, 1),
                    dilations = get_spatial_axes(window.dilations, 1), pads = get_spatial_axes(window.pads_begin, 0);
  set_group_strides(node, c);
  const Operand weights = node.get_packed_input(1);
  const ConvGemmBias bias = get_packed_bias(node);
  for (int64_t h = 0; h < steps.h; ++h) {
    for (int64_t w = 0; w < steps.w; ++w) {
      const ConvTransposePhase rows = make_conv_transpose_phase(h, c.y.h, steps.h, dilations.h, pads.h, kernel.h),
                               columns = make_conv_transpose_phase(w, c.y.w, steps.w, dilations.w, pads.w, kernel.w);
      ConvGemmParams phase_conv = c;
      phase_conv.out_h = rows.outputs, phase_conv.out_w = columns.outputs;
      phase_conv.tap_step_h = rows.in_step, phase_conv.tap_step_w = columns.in_step;
      phase_conv.base_h = rows.base, phase_conv.base_w = columns.base;
      phase_conv.taps_h = rows.taps, phase_conv.taps_w = columns.taps;
      phase_conv.tap_first = rows.tap * kernel.w + columns.tap, phase_conv.tap_row = rows.tap_step * kernel.w,
      phase_conv.tap_column = columns.tap_step;
      phase_conv.y_first = h * c.y.sh + w * c.y.sw;
      phase_conv.y.sh *= steps.h, phase_conv.y.sw *= steps.w;
      Operand y = node.output_operand(0);
      y.part = static_cast<uint32_t>(h * steps.w + w + 1);
      add_conv_gemm(node, phase_conv, node.input_operand(0), weights, bias, y);
    }
  }
}

}  // namespace pumice

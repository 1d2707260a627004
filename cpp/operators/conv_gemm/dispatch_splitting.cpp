#include "operators/conv_gemm/dispatch_splitting.h"

#include <algorithm>

#include "core/rounding.h"
#include "operators/conv_gemm/weight_packing.h"

namespace pumice {
namespace {

// Returns the number of elements of one packed group.
int64_t count_packed_group_elements(const NodeContext& node, const WeightView& weights, WeightOrder order) {
  if (order == WeightOrder::col_major) return weights.channels_out * weights.channels_in;
  if (order == WeightOrder::split_fp16) return 2 * count_fragment_elements(weights);
  return order == WeightOrder::fragments ? count_fragment_elements(weights) : count_packed_elements_per_group(node, weights);
}

// Returns the distance from the first to the last of `channels` channels, in elements.
int64_t compute_channel_span(const NchwView& planes, int64_t channels) {
  if (channels == 0) return 0;
  return planes.grouped ? (ceil_div(channels, 8) - 1) * planes.sc + 7 : (channels - 1) * planes.sc;
}

int64_t compute_axis_span(int64_t count, int64_t stride) {
  return std::max<int64_t>(count - 1, 0) * stride;
}

// Restricts a chunk to `count` groups, starting at group `first`.
void slice_groups(ConvGemmDispatch& chunk, int64_t first, int64_t count) {
  ConvGemmParams& c = chunk.c;
  c.x_first += first * c.x_stride_group;
  c.y_first += first * c.y_stride_group;
  c.w_first += first * c.w_stride_group;
  chunk.bias.first += first * c.weights.channels_out;
  if (c.integers && c.integers->x_zero) c.integers->x_zero->first += first * c.integers->x_zero->stride_group;
  if (c.integers && c.integers->w_zero)
    c.integers->w_zero->first += first * (c.is_gemm ? c.integers->w_zero->stride_group : c.weights.channels_out);
  c.weights.groups = count;
}

void advance_bias(ConvGemmBias& bias, int64_t elements) {
  if (bias.kind == ConvGemmBias::BiasKind::matrix) bias.first += elements;
}

void slice_channels(const NodeContext& node, ConvGemmDispatch& chunk, int64_t first, int64_t count) {
  ConvGemmParams& c = chunk.c;
  if (c.order == WeightOrder::strides) {
    c.w_first += first * c.weights.stride_out;
  } else {
    WeightView before = c.weights;
    before.channels_out = first;
    c.w_first += count_packed_group_elements(node, before, c.order);
  }
  c.fragments = c.folded_taps = 0;  // only kernels that process all channels read these copies
  c.y_first += c.y.grouped ? first / 8 * c.y.sc : first * c.y.sc;
  if (chunk.bias.kind == ConvGemmBias::BiasKind::channels) chunk.bias.first += first;
  advance_bias(chunk.bias, first * chunk.bias.stride_column);
  if (c.integers && c.integers->w_zero) c.integers->w_zero->first += first * (c.is_gemm ? c.integers->w_zero->stride : 1);
  c.weights.channels_out = count;
}

void slice_batch(ConvGemmDispatch& chunk, int64_t first, int64_t count) {
  chunk.c.x_first += first * chunk.c.x.sn;
  chunk.c.y_first += first * chunk.c.y.sn;
  chunk.c.x.n = chunk.c.y.n = count;
}

// A spatial input axis of a convolution, with the windows of its output axis.
struct InputAxis {
  int64_t &size, &base, &outputs;
  int64_t stride, in_step, tap_step, taps;
};

// Restricts an input axis to the range that outputs first .. first + count - 1 read. Returns the offset of that range.
int64_t restrict_input_axis(InputAxis axis, int64_t first, int64_t count) {
  const int64_t from = first * axis.in_step + axis.base, to = (first + count - 1) * axis.in_step + axis.base;
  const int64_t taps = (axis.taps - 1) * axis.tap_step;
  const int64_t low = std::clamp<int64_t>(from + std::min<int64_t>(taps, 0), 0, axis.size);
  const int64_t high = std::clamp<int64_t>(to + std::max<int64_t>(taps, 0) + 1, low, axis.size);
  axis.size = high - low;
  axis.base = from - low;
  axis.outputs = count;
  return low * axis.stride;
}

void slice_rows(ConvGemmDispatch& chunk, int64_t first, int64_t count) {
  ConvGemmParams& c = chunk.c;
  c.x_first += restrict_input_axis({c.x.h, c.base_h, c.out_h, c.x.sh, c.in_step_h, c.tap_step_h, c.taps_h}, first, count);
  c.y_first += first * c.y.sh;
}

void slice_columns(ConvGemmDispatch& chunk, int64_t first, int64_t count) {
  ConvGemmParams& c = chunk.c;
  c.y_first += first * c.y.sw;
  if (!c.is_gemm) {
    c.x_first += restrict_input_axis({c.x.w, c.base_w, c.out_w, c.x.sw, c.in_step_w, c.tap_step_w, c.taps_w}, first, count);
    return;
  }
  c.x_first += first * c.x.sw;
  c.x.w = c.out_w = count;
  advance_bias(chunk.bias, first * chunk.bias.stride_row);
  if (c.integers && c.integers->x_zero) c.integers->x_zero->first += first * c.integers->x_zero->stride;
}

using SliceAxis = void (*)(ConvGemmDispatch& chunk, int64_t first, int64_t count);

// An output axis: its size, the number of pixels per index, and the function that restricts a chunk to a range of the axis.
struct OutputAxis {
  int64_t count, pixels;
  SliceAxis slice;
};

ConvGemmDispatches split_axis(const ConvGemmDispatch& whole, const OutputAxis& axis, int64_t chunk_size) {
  ConvGemmDispatches chunks;
  for (int64_t first = 0; first < axis.count; first += chunk_size) {
    chunks.push_back(whole);
    axis.slice(chunks.back(), first, std::min(chunk_size, axis.count - first));
  }
  return chunks;
}

// Size, in bytes, of the larger of x and y, for the whole dispatch and for a chunk with a single output.
struct LargestTensorBytes {
  int64_t whole, single_output;
};

LargestTensorBytes find_largest_tensor(const ConvGemmDispatch& whole, const std::vector<OutputAxis>& axes) {
  const auto bytes_of = [&](const ConvGemmParams& c) {
    const DType x = c.integers ? c.integers->x : c.x_dtype, y = c.integers ? DType::int32 : c.y_dtype;
    return std::max(count_x_elements(c) * bits(x), count_y_elements(c) * bits(y)) / 8;
  };
  ConvGemmDispatch single = whole;
  for (const OutputAxis& axis : axes) axis.slice(single, 0, 1);
  return {bytes_of(whole.c), bytes_of(single.c)};
}

}  // namespace

int64_t count_x_elements(const ConvGemmParams& c) {
  const int64_t channels = c.x_is_split ? c.x.sw : c.padded ? round_up(c.weights.channels_in, 8) : c.weights.channels_in;
  return compute_axis_span(c.x.n, c.x.sn) + compute_axis_span(c.x.h, c.x.sh) + compute_axis_span(c.x.w, c.x.sw) +
         compute_channel_span(c.x, channels) + compute_axis_span(c.weights.groups, c.x_stride_group) + 1;
}

int64_t count_y_elements(const ConvGemmParams& c) {
  return compute_axis_span(c.x.n, c.y.sn) + compute_axis_span(c.out_h / c.pool.rows, c.y.sh) +
         compute_axis_span(c.out_w / c.pool.columns, c.y.sw) + compute_channel_span(c.y, c.weights.channels_out) +
         compute_axis_span(c.weights.groups, c.y_stride_group) + 1;
}

int64_t count_w_elements(const NodeContext& node, const ConvGemmParams& c) {
  const int64_t unpacked =
      compute_axis_span(c.weights.channels_out, c.weights.stride_out) + compute_axis_span(c.weights.channels_in, c.weights.stride_in) + 1;
  const int64_t group = c.order == WeightOrder::strides ? unpacked : count_packed_group_elements(node, c.weights, c.order);
  return compute_axis_span(c.weights.groups, c.w_stride_group) + group;
}

ConvGemmDispatches split_by_channels(const NodeContext& node, const ConvGemmDispatch& whole, int64_t columns) {
  const ConvGemmParams& c = whole.c;
  const DType weight_dtype = c.integers ? c.integers->w : node.float_dtype;
  const int64_t channels = c.weights.channels_out, block = columns > 0 ? columns : get_channels_per_block(node, c.weights, weight_dtype);
  ConvGemmDispatches chunks;
  if (block >= channels) return chunks;
  for (int64_t group = 0; group < c.weights.groups; ++group)
    for (int64_t first = 0; first < channels; first += block) {
      ConvGemmDispatch& chunk = chunks.emplace_back(whole);
      slice_groups(chunk, group, 1);
      slice_channels(node, chunk, first, std::min(block, channels - first));
    }
  return chunks;
}

ConvGemmDispatches split_by_pixels(const ConvGemmDispatch& whole, const DispatchLimits& limits) {
  const ConvGemmParams& c = whole.c;
  // The output axes, by decreasing stride.
  std::vector<OutputAxis> axes{{c.x.n, c.out_h * c.out_w, slice_batch}, {c.weights.groups, 0, slice_groups}};
  if (!c.is_gemm) axes.push_back({c.out_h, c.out_w, slice_rows});
  axes.push_back({c.out_w, 1, slice_columns});
  if (c.weights.groups > limits.groups) return split_axis(whole, axes[1], limits.groups);
  if (whole.pixels() > limits.pixels)
    for (const OutputAxis& axis : axes)
      if (axis.pixels > 0 && axis.count > 1) return split_axis(whole, axis, std::max<int64_t>(limits.pixels / axis.pixels, 1));
  const LargestTensorBytes bytes = find_largest_tensor(whole, axes);
  if (bytes.whole <= limits.bytes || bytes.single_output > limits.bytes) return {};
  for (const OutputAxis& axis : axes)
    if (axis.count > 1) return split_axis(whole, axis, ceil_div(axis.count, 2));
  return {};
}

}  // namespace pumice

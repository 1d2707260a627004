#include "operators/conv_gemm/dispatch_splitting.h"

#include <algorithm>

#include "core/rounding.h"
#include "operators/conv_gemm/weight_packing.h"

namespace pumice {
namespace {

// Number of elements of one packed group.
int64_t packed_group_size(const NodeContext& node, const WeightView& weights, WeightOrder order) {
  if (order == WeightOrder::col_major) return weights.channels_out * weights.channels_in;
  if (order == WeightOrder::split_fp16) return 2 * fragment_elements(weights);
  return order == WeightOrder::fragments ? fragment_elements(weights) : packed_group_elements(node, weights);
}

// Offset from the first to the last element over `channels` channels.
int64_t channel_span(const Planes& planes, int64_t channels) {
  if (channels == 0) return 0;
  return planes.grouped ? (ceil_div(channels, 8) - 1) * planes.sc + 7 : (channels - 1) * planes.sc;
}

int64_t axis_span(int64_t count, int64_t stride) {
  return std::max<int64_t>(count - 1, 0) * stride;
}

// Advances the operands of a part to a group.
void select_groups(ConvGemmCall& chunk, int64_t first, int64_t count) {
  ConvGemm& c = chunk.c;
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
  if (bias.kind == ConvGemmBias::Kind::matrix) bias.first += elements;
}

void select_channels(const NodeContext& node, ConvGemmCall& chunk, int64_t first, int64_t count) {
  ConvGemm& c = chunk.c;
  if (c.order == WeightOrder::strides) {
    c.w_first += first * c.weights.stride_out;
  } else {
    WeightView before = c.weights;
    before.channels_out = first;
    c.w_first += packed_group_size(node, before, c.order);
  }
  c.fragments = c.folded_taps = 0;  // only kernels that process all channels read these copies
  c.y_first += c.y.grouped ? first / 8 * c.y.sc : first * c.y.sc;
  if (chunk.bias.kind == ConvGemmBias::Kind::channels) chunk.bias.first += first;
  advance_bias(chunk.bias, first * chunk.bias.stride_column);
  if (c.integers && c.integers->w_zero) c.integers->w_zero->first += first * (c.is_gemm ? c.integers->w_zero->stride : 1);
  c.weights.channels_out = count;
}

void select_batch(ConvGemmCall& chunk, int64_t first, int64_t count) {
  chunk.c.x_first += first * chunk.c.x.sn;
  chunk.c.y_first += first * chunk.c.y.sn;
  chunk.c.x.n = chunk.c.y.n = count;
}

// An input axis of a convolution, with its output axis.
struct Axis {
  int64_t &size, &base, &outputs;
  int64_t stride, in_step, tap_step, taps;
};

// Restricts the input axis to the range that outputs `first` .. `first + count - 1` read. Returns the offset of its start.
int64_t restrict_input_axis(Axis axis, int64_t first, int64_t count) {
  const int64_t from = first * axis.in_step + axis.base, to = (first + count - 1) * axis.in_step + axis.base;
  const int64_t taps = (axis.taps - 1) * axis.tap_step;
  const int64_t low = std::clamp<int64_t>(from + std::min<int64_t>(taps, 0), 0, axis.size);
  const int64_t high = std::clamp<int64_t>(to + std::max<int64_t>(taps, 0) + 1, low, axis.size);
  axis.size = high - low;
  axis.base = from - low;
  axis.outputs = count;
  return low * axis.stride;
}

void select_rows(ConvGemmCall& chunk, int64_t first, int64_t count) {
  ConvGemm& c = chunk.c;
  c.x_first += restrict_input_axis({c.x.h, c.base_h, c.out_h, c.x.sh, c.in_step_h, c.tap_step_h, c.taps_h}, first, count);
  c.y_first += first * c.y.sh;
}

void select_columns(ConvGemmCall& chunk, int64_t first, int64_t count) {
  ConvGemm& c = chunk.c;
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

using SelectRange = void (*)(ConvGemmCall& chunk, int64_t first, int64_t count);

// An output axis: its size, pixels per entry, and the function that restricts a part to a range.
struct OutputAxis {
  int64_t count, pixels;
  SelectRange select;
};

ConvGemmCalls split_axis(const ConvGemmCall& whole, const OutputAxis& axis, int64_t each) {
  ConvGemmCalls chunks;
  for (int64_t first = 0; first < axis.count; first += each) {
    chunks.push_back(whole);
    axis.select(chunks.back(), first, std::min(each, axis.count - first));
  }
  return chunks;
}

// Size in bytes of the larger tensor, for the whole contraction and for a single output.
struct LargestTensor {
  int64_t whole, single_output;
};

LargestTensor largest_tensor(const ConvGemmCall& whole, const std::vector<OutputAxis>& axes) {
  const auto bytes_of = [&](const ConvGemm& c) {
    const DType x = c.integers ? c.integers->x : c.x_dtype, y = c.integers ? DType::int32 : c.y_dtype;
    return std::max(x_span(c) * bits(x), y_span(c) * bits(y)) / 8;
  };
  ConvGemmCall single = whole;
  for (const OutputAxis& axis : axes) axis.select(single, 0, 1);
  return {bytes_of(whole.c), bytes_of(single.c)};
}

}  // namespace

int64_t x_span(const ConvGemm& c) {
  const int64_t channels = c.x_is_split ? c.x.sw : c.padded ? round_up(c.weights.channels_in, 8) : c.weights.channels_in;
  return axis_span(c.x.n, c.x.sn) + axis_span(c.x.h, c.x.sh) + axis_span(c.x.w, c.x.sw) + channel_span(c.x, channels) +
         axis_span(c.weights.groups, c.x_stride_group) + 1;
}

int64_t y_span(const ConvGemm& c) {
  return axis_span(c.x.n, c.y.sn) + axis_span(c.out_h / c.pool.rows, c.y.sh) + axis_span(c.out_w / c.pool.columns, c.y.sw) +
         channel_span(c.y, c.weights.channels_out) + axis_span(c.weights.groups, c.y_stride_group) + 1;
}

int64_t w_span(const NodeContext& node, const ConvGemm& c) {
  const int64_t unpacked =
      axis_span(c.weights.channels_out, c.weights.stride_out) + axis_span(c.weights.channels_in, c.weights.stride_in) + 1;
  const int64_t group = c.order == WeightOrder::strides ? unpacked : packed_group_size(node, c.weights, c.order);
  return axis_span(c.weights.groups, c.w_stride_group) + group;
}

ConvGemmCalls split_by_channels(const NodeContext& node, const ConvGemmCall& whole, int64_t columns) {
  const ConvGemm& c = whole.c;
  const DType factors = c.integers ? c.integers->w : node.float_dtype;
  const int64_t channels = c.weights.channels_out, block = columns > 0 ? columns : channels_per_block(node, c.weights, factors);
  ConvGemmCalls chunks;
  if (block >= channels) return chunks;
  for (int64_t group = 0; group < c.weights.groups; ++group)
    for (int64_t first = 0; first < channels; first += block) {
      ConvGemmCall& chunk = chunks.emplace_back(whole);
      select_groups(chunk, group, 1);
      select_channels(node, chunk, first, std::min(block, channels - first));
    }
  return chunks;
}

ConvGemmCalls split_by_pixels(const ConvGemmCall& whole, const DispatchLimits& limits) {
  const ConvGemm& c = whole.c;
  // Axes by decreasing stride.
  std::vector<OutputAxis> axes{{c.x.n, c.out_h * c.out_w, select_batch}, {c.weights.groups, 0, select_groups}};
  if (!c.is_gemm) axes.push_back({c.out_h, c.out_w, select_rows});
  axes.push_back({c.out_w, 1, select_columns});
  if (c.weights.groups > limits.groups) return split_axis(whole, axes[1], limits.groups);
  if (whole.pixels() > limits.pixels)
    for (const OutputAxis& axis : axes)
      if (axis.pixels > 0 && axis.count > 1) return split_axis(whole, axis, std::max<int64_t>(limits.pixels / axis.pixels, 1));
  const LargestTensor bytes = largest_tensor(whole, axes);
  if (bytes.whole <= limits.bytes || bytes.single_output > limits.bytes) return {};
  for (const OutputAxis& axis : axes)
    if (axis.count > 1) return split_axis(whole, axis, ceil_div(axis.count, 2));
  return {};
}

}  // namespace pumice

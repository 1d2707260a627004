#include "operators/conv_gemm/dispatch_splitting.h"

#include <algorithm>

#include "core/rounding.h"
#include "operators/conv_gemm/weight_packing.h"

namespace pumice {
namespace {

// Number of elements of one packed group.
int64_t ordered_group(const NodeContext& node, const WeightView& weights, WeightOrder order) {
  if (order == WeightOrder::columns) return weights.channels_out * weights.channels_in;
  if (order == WeightOrder::halves) return 2 * fragment_elements(weights);
  return order == WeightOrder::fragments ? fragment_elements(weights) : packed_group(node, weights);
}

// Offset from the first to the last element over `channels` channels.
int64_t last_channel(const Planes& planes, int64_t channels) {
  if (channels == 0) return 0;
  return planes.grouped ? (ceil_div(channels, 8) - 1) * planes.sc + 7 : (channels - 1) * planes.sc;
}

int64_t last_of(int64_t count, int64_t stride) {
  return std::max<int64_t>(count - 1, 0) * stride;
}

// Advances the operands of a part to a group.
void skip_groups(PlacedContraction& part, int64_t first, int64_t count) {
  Contraction& c = part.c;
  c.x_first += first * c.x_stride_group;
  c.y_first += first * c.y_stride_group;
  c.w_first += first * c.w_stride_group;
  part.bias.first += first * c.weights.channels_out;
  if (c.integers && c.integers->x_zero) c.integers->x_zero->first += first * c.integers->x_zero->stride_group;
  if (c.integers && c.integers->w_zero)
    c.integers->w_zero->first += first * (c.matrix ? c.integers->w_zero->stride_group : c.weights.channels_out);
  c.weights.groups = count;
}

void skip_bias(ContractionBias& bias, int64_t elements) {
  if (bias.kind == ContractionBias::Kind::matrix) bias.first += elements;
}

void skip_channels(const NodeContext& node, PlacedContraction& part, int64_t first, int64_t count) {
  Contraction& c = part.c;
  if (c.order == WeightOrder::strides) {
    c.w_first += first * c.weights.stride_out;
  } else {
    WeightView before = c.weights;
    before.channels_out = first;
    c.w_first += ordered_group(node, before, c.order);
  }
  c.fragments = c.spread = 0;  // only kernels that process all channels read these copies
  c.y_first += c.y.grouped ? first / 8 * c.y.sc : first * c.y.sc;
  if (part.bias.kind == ContractionBias::Kind::channels) part.bias.first += first;
  skip_bias(part.bias, first * part.bias.stride_column);
  if (c.integers && c.integers->w_zero) c.integers->w_zero->first += first * (c.matrix ? c.integers->w_zero->stride : 1);
  c.weights.channels_out = count;
}

void skip_images(PlacedContraction& part, int64_t first, int64_t count) {
  part.c.x_first += first * part.c.x.sn;
  part.c.y_first += first * part.c.y.sn;
  part.c.x.n = part.c.y.n = count;
}

// An input axis of a convolution, with its output axis.
struct Axis {
  int64_t &size, &base, &outputs;
  int64_t stride, in_step, tap_step, taps;
};

// Restricts the input axis to the range that outputs `first` .. `first + count - 1` read. Returns the offset of its start.
int64_t skip_outputs(Axis axis, int64_t first, int64_t count) {
  const int64_t from = first * axis.in_step + axis.base, to = (first + count - 1) * axis.in_step + axis.base;
  const int64_t taps = (axis.taps - 1) * axis.tap_step;
  const int64_t low = std::clamp<int64_t>(from + std::min<int64_t>(taps, 0), 0, axis.size);
  const int64_t high = std::clamp<int64_t>(to + std::max<int64_t>(taps, 0) + 1, low, axis.size);
  axis.size = high - low;
  axis.base = from - low;
  axis.outputs = count;
  return low * axis.stride;
}

void skip_rows(PlacedContraction& part, int64_t first, int64_t count) {
  Contraction& c = part.c;
  c.x_first += skip_outputs({c.x.h, c.base_h, c.out_h, c.x.sh, c.in_step_h, c.tap_step_h, c.taps_h}, first, count);
  c.y_first += first * c.y.sh;
}

void skip_columns(PlacedContraction& part, int64_t first, int64_t count) {
  Contraction& c = part.c;
  c.y_first += first * c.y.sw;
  if (!c.matrix) {
    c.x_first += skip_outputs({c.x.w, c.base_w, c.out_w, c.x.sw, c.in_step_w, c.tap_step_w, c.taps_w}, first, count);
    return;
  }
  c.x_first += first * c.x.sw;
  c.x.w = c.out_w = count;
  skip_bias(part.bias, first * part.bias.stride_row);
  if (c.integers && c.integers->x_zero) c.integers->x_zero->first += first * c.integers->x_zero->stride;
}

using Skip = void (*)(PlacedContraction& part, int64_t first, int64_t count);

// An output axis: its size, pixels per entry, and the function that restricts a part to a range.
struct OutputAxis {
  int64_t count, pixels;
  Skip skip;
};

Parts cut(const PlacedContraction& whole, const OutputAxis& axis, int64_t each) {
  Parts parts;
  for (int64_t first = 0; first < axis.count; first += each) {
    parts.push_back(whole);
    axis.skip(parts.back(), first, std::min(each, axis.count - first));
  }
  return parts;
}

// Size in bytes of the larger tensor, for the whole contraction and for a single output.
struct TensorBytes {
  int64_t whole, least;
};

TensorBytes tensor_bytes(const PlacedContraction& whole, const std::vector<OutputAxis>& axes) {
  const auto bytes_of = [&](const Contraction& c) {
    const DType x = c.integers ? c.integers->x : c.x_dtype, y = c.integers ? DType::int32 : c.y_dtype;
    return std::max(x_span(c) * bits(x), y_span(c) * bits(y)) / 8;
  };
  PlacedContraction one = whole;
  for (const OutputAxis& axis : axes) axis.skip(one, 0, 1);
  return {bytes_of(whole.c), bytes_of(one.c)};
}

}  // namespace

int64_t x_span(const Contraction& c) {
  const int64_t channels = c.split ? c.x.sw : c.padded ? round_up(c.weights.channels_in, 8) : c.weights.channels_in;
  return last_of(c.x.n, c.x.sn) + last_of(c.x.h, c.x.sh) + last_of(c.x.w, c.x.sw) + last_channel(c.x, channels) +
         last_of(c.weights.groups, c.x_stride_group) + 1;
}

int64_t y_span(const Contraction& c) {
  return last_of(c.x.n, c.y.sn) + last_of(c.out_h / c.pool.rows, c.y.sh) + last_of(c.out_w / c.pool.columns, c.y.sw) +
         last_channel(c.y, c.weights.channels_out) + last_of(c.weights.groups, c.y_stride_group) + 1;
}

int64_t w_span(const NodeContext& node, const Contraction& c) {
  const int64_t unpacked = last_of(c.weights.channels_out, c.weights.stride_out) + last_of(c.weights.channels_in, c.weights.stride_in) + 1;
  const int64_t group = c.order == WeightOrder::strides ? unpacked : ordered_group(node, c.weights, c.order);
  return last_of(c.weights.groups, c.w_stride_group) + group;
}

Parts channel_parts(const NodeContext& node, const PlacedContraction& whole, int64_t columns) {
  const Contraction& c = whole.c;
  const DType factors = c.integers ? c.integers->w : node.float_dtype;
  const int64_t channels = c.weights.channels_out, block = columns > 0 ? columns : block_channels(node, c.weights, factors);
  Parts parts;
  if (block >= channels) return parts;
  for (int64_t group = 0; group < c.weights.groups; ++group)
    for (int64_t first = 0; first < channels; first += block) {
      PlacedContraction& part = parts.emplace_back(whole);
      skip_groups(part, group, 1);
      skip_channels(node, part, first, std::min(block, channels - first));
    }
  return parts;
}

Parts pixel_parts(const PlacedContraction& whole, const DispatchRoom& room) {
  const Contraction& c = whole.c;
  // Axes by decreasing stride.
  std::vector<OutputAxis> axes{{c.x.n, c.out_h * c.out_w, skip_images}, {c.weights.groups, 0, skip_groups}};
  if (!c.matrix) axes.push_back({c.out_h, c.out_w, skip_rows});
  axes.push_back({c.out_w, 1, skip_columns});
  if (c.weights.groups > room.groups) return cut(whole, axes[1], room.groups);
  if (whole.pixels() > room.pixels)
    for (const OutputAxis& axis : axes)
      if (axis.pixels > 0 && axis.count > 1) return cut(whole, axis, std::max<int64_t>(room.pixels / axis.pixels, 1));
  const TensorBytes bytes = tensor_bytes(whole, axes);
  if (bytes.whole <= room.bytes || bytes.least > room.bytes) return {};
  for (const OutputAxis& axis : axes)
    if (axis.count > 1) return cut(whole, axis, ceil_div(axis.count, 2));
  return {};
}

}  // namespace pumice

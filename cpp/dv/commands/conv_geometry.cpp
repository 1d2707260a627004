#include "dv/commands/conv_geometry.h"

namespace pumice::dv {
namespace {

constexpr uint32_t kConvPadBits = 0x7f;  // mask for the left and top padding

uint32_t get_low_byte(uint32_t pair) {
  return pair & 0xff;
}

uint32_t get_high_byte(uint32_t pair) {
  return pair >> 8 & 0xff;
}

Extent compute_window_output(const Extent& input, const SlidingWindow& window, uint32_t channels) {
  return {count_window_positions(input.width, window.left, window.right, window.dilated_width(), window.stride_x),
          count_window_positions(input.height, window.top, window.bottom, window.dilated_height(), window.stride_y), channels};
}

// Returns the size after inserting stride - 1 zeros between elements.
uint32_t compute_zero_stuffed_size(uint32_t size, uint32_t stride) {
  return size == 0 ? 0 : (size - 1) * stride + 1;
}

}  // namespace

SlidingWindow decode_conv_window(uint16_t p, uint32_t conv_pad, uint16_t conv_stride, uint16_t conv_dilation) {
  const auto default_one = [](uint32_t value) { return value == 0 ? 1 : value; };
  return {get_low_byte(p),
          get_high_byte(p) == 0 ? get_low_byte(p) : get_high_byte(p),
          get_low_byte(conv_stride),
          get_high_byte(conv_stride),
          default_one(get_low_byte(conv_dilation)),
          default_one(get_high_byte(conv_dilation)),
          conv_pad & kConvPadBits,
          conv_pad >> 8 & 0xff,
          conv_pad >> 16 & kConvPadBits,
          conv_pad >> 24};
}

SlidingWindow decode_pool_window(uint16_t pool_size, uint32_t pool_pad, uint16_t pool_stride) {
  return {.kx = get_low_byte(pool_size),
          .ky = get_high_byte(pool_size),
          .stride_x = get_low_byte(pool_stride),
          .stride_y = get_high_byte(pool_stride),
          .left = get_low_byte(pool_pad),
          .right = get_high_byte(pool_pad),
          .top = pool_pad >> 16 & 0xff,
          .bottom = pool_pad >> 24};
}

uint32_t count_window_positions(uint32_t size, uint32_t before, uint32_t after, uint32_t reach, uint32_t stride) {
  const uint32_t padded = before + size + after;
  return stride == 0 || reach == 0 || reach > padded ? 0 : (padded - reach) / stride + 1;
}

Extent compute_conv_output(const Extent& input, const ConvRunGeometry& run) {
  if (run.conv == ConvKind::none) return input;
  if (!is_transposed(run.conv)) return compute_window_output(input, run.conv_window, run.kernels);
  SlidingWindow window = run.conv_window;
  if (window.stride_x == 0 || window.stride_y == 0) return {};
  const Extent zero_stuffed{compute_zero_stuffed_size(input.width, window.stride_x),
                            compute_zero_stuffed_size(input.height, window.stride_y), input.channels};
  window.stride_x = window.stride_y = 1;
  return compute_window_output(zero_stuffed, window, run.kernels);
}

Extent compute_run_output(const Extent& input, const ConvRunGeometry& run) {
  const Extent conv_result = compute_conv_output(input, run);
  switch (run.pool) {
    case PoolKind::none:
      return conv_result;
    case PoolKind::upsample:
      return {2 * conv_result.width, 2 * conv_result.height, conv_result.channels};
    default:
      return compute_window_output(conv_result, run.pool_window, conv_result.channels);
  }
}

ConvDims make_weight_dims(const Extent& input, const ConvRunGeometry& run) {
  const uint32_t channels = is_depthwise(run.conv) ? 1 : input.channels;
  return {static_cast<int>(channels),
          static_cast<int>(run.conv_window.kx),
          static_cast<int>(run.conv_window.ky),
          static_cast<int>(run.kernels),
          run.quantized,
          run.prelu};
}

size_t compute_weight_bytes(const Extent& input, const ConvRunGeometry& run) {
  const ConvDims dims = make_weight_dims(input, run);
  return run.conv_window.dilated() ? compute_packed_dil_bytes(dims) : compute_packed_conv_bytes(dims);
}

}  // namespace pumice::dv

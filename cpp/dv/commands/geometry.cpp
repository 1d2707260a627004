#include "dv/commands/geometry.h"

namespace pumice::dv {
namespace {

constexpr uint32_t kConvPadBits = 0x7f;  // mask for the left and top padding

uint32_t low_byte(uint32_t pair) {
  return pair & 0xff;
}

uint32_t high_byte(uint32_t pair) {
  return pair >> 8 & 0xff;
}

Extent window_output_extent(const Extent& input, const Window& window, uint32_t channels) {
  return {num_window_positions(input.width, window.left, window.right, window.reach_x(), window.stride_x),
          num_window_positions(input.height, window.top, window.bottom, window.reach_y(), window.stride_y), channels};
}

// Returns the size after inserting stride - 1 zeros between elements.
uint32_t zero_stuffed_size(uint32_t size, uint32_t stride) {
  return size == 0 ? 0 : (size - 1) * stride + 1;
}

}  // namespace

Window conv_window(uint16_t p, uint32_t conv_pad, uint16_t conv_stride, uint16_t conv_dilation) {
  const auto default_one = [](uint32_t value) { return value == 0 ? 1 : value; };
  return {low_byte(p),
          high_byte(p) == 0 ? low_byte(p) : high_byte(p),
          low_byte(conv_stride),
          high_byte(conv_stride),
          default_one(low_byte(conv_dilation)),
          default_one(high_byte(conv_dilation)),
          conv_pad & kConvPadBits,
          conv_pad >> 8 & 0xff,
          conv_pad >> 16 & kConvPadBits,
          conv_pad >> 24};
}

Window pool_window(uint16_t pool_size, uint32_t pool_pad, uint16_t pool_stride) {
  return {.kx = low_byte(pool_size),
          .ky = high_byte(pool_size),
          .stride_x = low_byte(pool_stride),
          .stride_y = high_byte(pool_stride),
          .left = low_byte(pool_pad),
          .right = high_byte(pool_pad),
          .top = pool_pad >> 16 & 0xff,
          .bottom = pool_pad >> 24};
}

uint32_t num_window_positions(uint32_t size, uint32_t before, uint32_t after, uint32_t reach, uint32_t stride) {
  const uint32_t padded = before + size + after;
  return stride == 0 || reach == 0 || reach > padded ? 0 : (padded - reach) / stride + 1;
}

Extent conv_output(const Extent& input, const RunGeometry& run) {
  if (run.conv == ConvKind::none) return input;
  if (!is_transposed(run.conv)) return window_output_extent(input, run.conv_window, run.kernels);
  Window window = run.conv_window;
  if (window.stride_x == 0 || window.stride_y == 0) return {};
  const Extent zero_stuffed{zero_stuffed_size(input.width, window.stride_x), zero_stuffed_size(input.height, window.stride_y),
                            input.channels};
  window.stride_x = window.stride_y = 1;
  return window_output_extent(zero_stuffed, window, run.kernels);
}

Extent run_output(const Extent& input, const RunGeometry& run) {
  const Extent conv_result = conv_output(input, run);
  switch (run.pool) {
    case PoolKind::none:
      return conv_result;
    case PoolKind::upsample:
      return {2 * conv_result.width, 2 * conv_result.height, conv_result.channels};
    default:
      return window_output_extent(conv_result, run.pool_window, conv_result.channels);
  }
}

ConvDims weight_dims(const Extent& input, const RunGeometry& run) {
  const uint32_t channels = is_depthwise(run.conv) ? 1 : input.channels;
  return {static_cast<int>(channels),
          static_cast<int>(run.conv_window.kx),
          static_cast<int>(run.conv_window.ky),
          static_cast<int>(run.kernels),
          run.quantized,
          run.prelu};
}

size_t weight_bytes(const Extent& input, const RunGeometry& run) {
  const ConvDims dims = weight_dims(input, run);
  return run.conv_window.dilated() ? packed_dil_bytes(dims) : packed_conv_bytes(dims);
}

}  // namespace pumice::dv

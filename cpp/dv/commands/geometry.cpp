#include "dv/commands/geometry.h"

namespace pumice::dv {
namespace {

constexpr uint32_t kConvPadBits = 0x7f;  // mask for the left and top padding

uint32_t low(uint32_t pair) {
  return pair & 0xff;
}

uint32_t high(uint32_t pair) {
  return pair >> 8 & 0xff;
}

Extent moved_over(const Extent& input, const Window& window, uint32_t channels) {
  return {window_places(input.width, window.left, window.right, window.reach_x(), window.stride_x),
          window_places(input.height, window.top, window.bottom, window.reach_y(), window.stride_y), channels};
}

// Returns the size after inserting stride - 1 zeros between elements.
uint32_t spread(uint32_t size, uint32_t stride) {
  return size == 0 ? 0 : (size - 1) * stride + 1;
}

}  // namespace

Window conv_window(uint16_t p, uint32_t conv_pad, uint16_t conv_stride, uint16_t conv_dilation) {
  const auto or_one = [](uint32_t value) { return value == 0 ? 1 : value; };
  return {low(p),
          high(p) == 0 ? low(p) : high(p),
          low(conv_stride),
          high(conv_stride),
          or_one(low(conv_dilation)),
          or_one(high(conv_dilation)),
          conv_pad & kConvPadBits,
          conv_pad >> 8 & 0xff,
          conv_pad >> 16 & kConvPadBits,
          conv_pad >> 24};
}

Window pool_window(uint16_t pool_size, uint32_t pool_pad, uint16_t pool_stride) {
  return {.kx = low(pool_size),
          .ky = high(pool_size),
          .stride_x = low(pool_stride),
          .stride_y = high(pool_stride),
          .left = low(pool_pad),
          .right = high(pool_pad),
          .top = pool_pad >> 16 & 0xff,
          .bottom = pool_pad >> 24};
}

uint32_t window_places(uint32_t size, uint32_t before, uint32_t after, uint32_t reach, uint32_t stride) {
  const uint32_t padded = before + size + after;
  return stride == 0 || reach == 0 || reach > padded ? 0 : (padded - reach) / stride + 1;
}

Extent conv_output(const Extent& input, const RunGeometry& run) {
  if (run.conv == ConvKind::none) return input;
  if (!is_transposed(run.conv)) return moved_over(input, run.conv_window, run.kernels);
  Window window = run.conv_window;
  if (window.stride_x == 0 || window.stride_y == 0) return {};
  const Extent spaced{spread(input.width, window.stride_x), spread(input.height, window.stride_y), input.channels};
  window.stride_x = window.stride_y = 1;
  return moved_over(spaced, window, run.kernels);
}

Extent run_output(const Extent& input, const RunGeometry& run) {
  const Extent made = conv_output(input, run);
  switch (run.pool) {
    case PoolKind::none:
      return made;
    case PoolKind::upsample:
      return {2 * made.width, 2 * made.height, made.channels};
    default:
      return moved_over(made, run.pool_window, made.channels);
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

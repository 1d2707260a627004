// Shapes and sizes of the runs of a convolution command.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dv/weights/extent.h"
#include "dv/weights/packing.h"

namespace pumice::dv {

// A sliding window over padded activations.
struct SlidingWindow {
  uint32_t kx = 1, ky = 1, stride_x = 1, stride_y = 1, dilation_x = 1, dilation_y = 1;
  uint32_t left = 0, right = 0, top = 0, bottom = 0;
  uint32_t dilated_width() const { return (kx - 1) * dilation_x + 1; }
  uint32_t dilated_height() const { return (ky - 1) * dilation_y + 1; }
  SlidingWindow transposed() const { return {ky, kx, stride_y, stride_x, dilation_y, dilation_x, top, bottom, left, right}; }
  bool dilated() const { return dilation_x > 1 || dilation_y > 1; }
  bool operator==(const SlidingWindow&) const = default;
};

// Decode the fields of a run. A kernel without a height is square; a dilation of 0 means 1.
SlidingWindow decode_conv_window(uint16_t p, uint32_t conv_pad, uint16_t conv_stride, uint16_t conv_dilation);
SlidingWindow decode_pool_window(uint16_t pool_size, uint32_t pool_pad, uint16_t pool_stride);

enum class ConvKind : uint8_t { none = 0, convolution = 1, depthwise = 3, deconvolution = 5, depthwise_deconvolution = 7 };
enum class PoolKind : uint8_t { none = 0, maximum = 1, average = 2, upsample = 4 };

constexpr bool is_depthwise(ConvKind kind) {
  return (static_cast<uint8_t>(kind) & 2) != 0;
}
constexpr bool is_transposed(ConvKind kind) {
  return (static_cast<uint8_t>(kind) & 4) != 0;
}

struct ConvRunGeometry {
  ConvKind conv = ConvKind::none;
  SlidingWindow conv_window;
  uint32_t kernels = 0;  // output channels
  bool quantized = false, prelu = false;
  PoolKind pool = PoolKind::none;
  SlidingWindow pool_window;
};

// Returns the number of window positions on one axis; 0 if the window exceeds the padded input or the stride is 0.
uint32_t count_window_positions(uint32_t size, uint32_t before, uint32_t after, uint32_t reach, uint32_t stride);
// Returns the size of the convolution's output, or of the input if there is no convolution: the operand of an addition before max pooling
// or upsampling. Empty if the kernel does not fit.
Extent compute_conv_output(const Extent& input, const ConvRunGeometry& run);
Extent compute_run_output(const Extent& input, const ConvRunGeometry& run);  // also empty if any kernel does not fit
// Return the size and dimensions of packed convolution weights. Throw BindingError (D1) if a dimension is out of range.
size_t compute_weight_bytes(const Extent& input, const ConvRunGeometry& run);
ConvDims make_weight_dims(const Extent& input, const ConvRunGeometry& run);

}  // namespace pumice::dv

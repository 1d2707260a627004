// 3D convolution, and helpers for kernels over one to three spatial axes.
#pragma once

#include "operators/conv_gemm/conv_gemm_dispatch.h"
#include "operators/geometry/window_geometry.h"

namespace pumice {

// Returns the specialisation constants of include/window_3d.glsl.
SpecValues make_window_3d_constants(const WindowGeometry& window);
// Pads a list of values per spatial axis to three axes. Absent axes get the value `missing`.
std::vector<int64_t> pad_to_3d(const std::vector<int64_t>& values, int64_t missing);
// Returns the strides of the batch, channel and three spatial axes, in elements.
std::vector<int64_t> pad_strides_to_3d(const TensorDesc& desc);
// Throws UnsupportedError if there are more than three spatial axes.
void check_spatial_rank(const LowerContext& node);

// A 3D convolution, plain or transposed, with weights in ONNX layout.
struct Conv3d {
  const WindowGeometry& window;
  const TensorDesc &x, &w, &y;
  bool transposed;
  std::optional<Int8Params> integers;  // set for an int8 convolution
};
// Adds the steps of a 3D convolution of input 0.
void add_conv3d(LowerContext& node, const Conv3d& conv, const Operand& weights, const ConvGemmBias& bias, const Operand& result);

}  // namespace pumice

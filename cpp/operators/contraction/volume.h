// Windows over up to three spatial axes for the kernels without tiles.
#pragma once

#include "operators/contraction/contraction.h"
#include "operators/geometry/window_geometry.h"

namespace pumice {

// The specialization constants of include/volume.glsl.
SpecValues volume_constants(const WindowGeometry& window);
// Sizes (or another fact) of three spatial axes, `missing` for those that are not there.
std::vector<int64_t> volume_axes(const std::vector<int64_t>& values, int64_t missing);
// Strides of images, channels and three spatial axes.
std::vector<int64_t> volume_strides(const TensorDesc& desc);
// Refuses (UnsupportedError) more axes than three.
void check_volume(const LowerContext& node);

// A convolution over three axes, plain or transposed. The weights are as ONNX has them.
struct VolumeConv {
  const WindowGeometry& window;
  const TensorDesc &x, &w, &y;
  bool transposed;
  std::optional<IntegerTerms> integers;  // none: of floats
};
// x is input 0.
void add_volume_conv(LowerContext& node, const VolumeConv& conv, const Operand& weights, const ContractionBias& bias, const Operand& made);

}  // namespace pumice

// Depthwise convolutions: see conv_depthwise.comp.
#pragma once

#include "operators/conv_gemm/conv_gemm_dispatch.h"
#include "operators/geometry/window_geometry.h"

namespace pumice {

// Whether conv_depthwise supports these weights [channels, 1, kernel..], which it reads unpacked. Packing, lowering and pooling fusion all
// call this, because they must agree.
bool is_depthwise(const Attributes& attributes, const TensorDesc& w);

void add_depthwise(LowerContext& node, const WindowGeometry& window, const ConvGemmBias& bias);

}  // namespace pumice

// Convolutions of each channel with a kernel of its own: see conv_depthwise.comp.
#pragma once

#include "operators/contraction/contraction.h"
#include "operators/geometry/window_geometry.h"

namespace pumice {

// Whether a convolution with such weights [channels, 1, kernel..] is one that the kernel takes, which reads them as they are: packing,
// lowering and the fusion with a pooling decide alike.
bool is_depthwise(const Attributes& attributes, const TensorDesc& w);

void add_depthwise(LowerContext& node, const WindowGeometry& window, const ContractionBias& bias);

}  // namespace pumice

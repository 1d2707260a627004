// Windows that slide over the spatial axes: resolved once, for the shape rules and the lowerings alike.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/tensor_desc.h"
#include "operators/attributes.h"

namespace pumice {

// Kernel, steps and padding of every spatial axis, and the output's spatial sizes. Padding is never negative in a pooling.
struct WindowGeometry {
  std::vector<int64_t> kernel, strides, dilations, pads_begin, pads_end, output;
};

// From the attributes kernel_shape, strides, dilations, pads, auto_pad (output_padding, output_shape, ceil_mode) and the shapes
// [N, C, spatial..] and [O, I, kernel..]. Throw GraphError naming `node` for attributes of the wrong length or out of range and for
// a window larger than its padded input.
WindowGeometry conv_geometry(const Attributes& attributes, std::string_view node, const Shape& input, const Shape& weight);
WindowGeometry conv_transpose_geometry(const Attributes& attributes, std::string_view node, const Shape& input, const Shape& weight);
WindowGeometry pool_geometry(const Attributes& attributes, std::string_view node, const Shape& input);

}  // namespace pumice

// The sizes of windows over spatial axes: what Conv, ConvTranspose and the pools say in their attributes, with shapes known.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/tensor_desc.h"
#include "operators/row/attributes.h"

namespace pumice {

// A window's numbers, one for each spatial axis. For a transposed convolution strides and pads are those of the output.
struct WindowGeometry {
  std::vector<int64_t> kernel, strides, dilations, pads_begin, pads_end, output;
};

// The windows of one node. `x`: [N, C, spatial..]; `w`: the weights' shape, whose trailing sizes are the kernel's. Throw GraphError naming
// `node`.
WindowGeometry conv_geometry(const Attributes& attributes, std::string_view node, const Shape& x, const Shape& w);
WindowGeometry conv_transpose_geometry(const Attributes& attributes, std::string_view node, const Shape& x, const Shape& w);
// The spatial sizes that a pooling had before it made `x`, in `output`.
WindowGeometry unpool_geometry(const Attributes& attributes, std::string_view node, const Shape& x);
void check_pooled(std::string_view node, const Shape& x);  // refuses empty images, if there are any images
WindowGeometry pool_geometry(const Attributes& attributes, std::string_view node, const Shape& x);

}  // namespace pumice

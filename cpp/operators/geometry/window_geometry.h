// Window parameters over spatial axes, from the attributes of Conv, ConvTranspose and pools with known shapes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/tensor_desc.h"
#include "operators/table/attributes.h"

namespace pumice {

// Window parameters, one value per spatial axis. For a transposed convolution, strides and pads refer to the output.
struct WindowGeometry {
  std::vector<int64_t> kernel, strides, dilations, pads_begin, pads_end, output;
};

// Windows of a node. `x`: [N, C, spatial..]; `w`: shape of the weights, whose trailing sizes are the kernel's. Throw GraphError naming
// `node` if an attribute or a shape is invalid.
WindowGeometry conv_geometry(const Attributes& attributes, std::string_view node, const Shape& x, const Shape& w);
WindowGeometry conv_transpose_geometry(const Attributes& attributes, std::string_view node, const Shape& x, const Shape& w);
// Returns, in `output`, the spatial sizes before the pooling that produced `x`.
WindowGeometry unpool_geometry(const Attributes& attributes, std::string_view node, const Shape& x);
void check_pool_input(std::string_view node, const Shape& x);  // throws GraphError for images without elements, unless the batch is empty
WindowGeometry pool_geometry(const Attributes& attributes, std::string_view node, const Shape& x);

}  // namespace pumice

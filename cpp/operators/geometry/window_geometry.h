// Computes the window parameters of convolutions and pooling from attributes and shapes.
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

// Compute the window parameters of a convolution or pooling. `x`: shape [N, C, spatial..]. `w`: shape of the weights,
// [.., .., kernel sizes..]. They throw a GraphError that names `node` if an attribute or a shape is invalid.
WindowGeometry compute_conv_geometry(const Attributes& attributes, std::string_view node, const Shape& x, const Shape& w);
WindowGeometry compute_conv_transpose_geometry(const Attributes& attributes, std::string_view node, const Shape& x, const Shape& w);
// Computes the window parameters of MaxUnpool. WindowGeometry::output contains the spatial sizes before pooling.
WindowGeometry compute_unpool_geometry(const Attributes& attributes, std::string_view node, const Shape& x);
void check_pool_input(std::string_view node, const Shape& x);  // throws GraphError if images are empty and the batch is not
WindowGeometry compute_pool_geometry(const Attributes& attributes, std::string_view node, const Shape& x);

}  // namespace pumice

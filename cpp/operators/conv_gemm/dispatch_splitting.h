// Splits a GEMM or convolution that is too large for one dispatch: it has more workgroups than the grid allows, or a tensor larger than a
// binding.
#pragma once

#include <functional>

#include "operators/conv_gemm/conv_gemm_params.h"

namespace pumice {

// A GEMM or convolution with its operands.
struct ConvGemmDispatch {
  ConvGemmParams c;
  Operand x, w;
  ConvGemmBias bias;
  Operand y;

  int64_t pixels() const { return c.x.n * c.out_h * c.out_w; }
};

// Return the number of elements, from the first to the last, that a dispatch reads in x or writes in y.
int64_t count_x_elements(const ConvGemmParams& c);
int64_t count_y_elements(const ConvGemmParams& c);
// Returns the number of weight elements that a dispatch reads.
int64_t count_w_elements(const NodeContext& node, const ConvGemmParams& c);

// Limits of one dispatch.
struct DispatchLimits {
  int64_t pixels, groups;
  int64_t bytes;  // maximum size of a tensor
};

using ConvGemmDispatches = std::vector<ConvGemmDispatch>;

// Splits into blocks of output channels, each of a single group; empty if no split is needed. `columns`: channels per dispatch for a matrix
// that is not packed in blocks, else 0.
ConvGemmDispatches split_by_channels(const NodeContext& node, const ConvGemmDispatch& whole, int64_t columns);
// Splits by batch, groups, rows or pixels; empty if everything fits, or if no split makes a tensor small enough. Chunks may need further
// splits.
ConvGemmDispatches split_by_pixels(const ConvGemmDispatch& whole, const DispatchLimits& limits);

}  // namespace pumice

// Splits a GEMM or convolution that is too large for one dispatch, because it needs more workgroups than the grid allows or a tensor is
// larger than a binding.
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

// Return the number of elements, from first to last, of the ranges that a dispatch reads in x and writes in y.
int64_t count_x_elements(const ConvGemmParams& c);
int64_t count_y_elements(const ConvGemmParams& c);
// Returns the number of weight elements that a dispatch reads.
int64_t count_w_elements(const NodeContext& node, const ConvGemmParams& c);

// Device limits of a single dispatch.
struct DispatchLimits {
  int64_t pixels, groups;
  int64_t bytes;  // maximum size of a tensor
};

using ConvGemmDispatches = std::vector<ConvGemmDispatch>;

// Splits into blocks of output channels of a single group. Returns no dispatches if no split is needed. `columns`: maximum number of
// channels per dispatch for a matrix that is not packed in blocks; otherwise 0.
ConvGemmDispatches split_by_channels(const NodeContext& node, const ConvGemmDispatch& whole, int64_t columns);
// Splits by batch, groups, rows or pixels. Returns no dispatches if everything fits, or if no split makes a tensor small enough. The
// returned dispatches may need further splits.
ConvGemmDispatches split_by_pixels(const ConvGemmDispatch& whole, const DispatchLimits& limits);

}  // namespace pumice

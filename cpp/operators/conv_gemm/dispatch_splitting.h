// Splits a contraction that is too large for one dispatch: it has more workgroups than the grid allows, or a tensor larger than a binding.
#pragma once

#include <functional>

#include "operators/conv_gemm/conv_gemm_params.h"

namespace pumice {

// A contraction with its operands.
struct ConvGemmCall {
  ConvGemm c;
  Operand x, w;
  ConvGemmBias bias;
  Operand y;

  int64_t pixels() const { return c.x.n * c.out_h * c.out_w; }
};

// Number of elements from the first to the last that a contraction reads in x, or writes in y.
int64_t x_span(const ConvGemm& c);
int64_t y_span(const ConvGemm& c);
// Number of weight elements that it reads.
int64_t w_span(const NodeContext& node, const ConvGemm& c);

// Limits of one dispatch.
struct DispatchLimits {
  int64_t pixels, groups;
  int64_t bytes;  // maximum size of a tensor
};

using ConvGemmCalls = std::vector<ConvGemmCall>;

// Splits a contraction into blocks of channels, each of a single group; empty if no split is needed. `columns`: channels per dispatch for a
// matrix that is not packed in blocks, else 0.
ConvGemmCalls split_by_channels(const NodeContext& node, const ConvGemmCall& whole, int64_t columns);
// Splits by batch, groups, rows or pixels; empty if the whole fits or no split makes a tensor small enough. Parts may need further splits.
ConvGemmCalls split_by_pixels(const ConvGemmCall& whole, const DispatchLimits& limits);

}  // namespace pumice

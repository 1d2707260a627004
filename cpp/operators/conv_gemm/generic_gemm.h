// GEMM for fp64, integers and strided tensors, with one output element per invocation.
#pragma once

#include "operators/table/lowering.h"

namespace pumice {

struct GemmScalars {
  double alpha = 1, beta = 1;
};

// Adds the step y = alpha * a b + beta * c. a and b are strided tensors [batch.., M, K] and [batch.., K, N]. `c`: row and column strides of
// input 2; nullopt if there is no c.
void add_generic_gemm(LowerContext& node, const TensorDesc& a, const TensorDesc& b, const TensorDesc& y,
                      const std::optional<Strides>& c = {}, const GemmScalars& scalars = {});

}  // namespace pumice

// Matrix products outside the contraction kernels: of doubles and integers, and of strided tensors.
#pragma once

#include "operators/row/lowering.h"

namespace pumice {

struct ProductFactors {
  double alpha = 1, beta = 1;
};

// Adds y = alpha * a b + beta * c; a and b are [batch.., rows, depth] and [batch.., depth, columns] as their strides tell. `c`: its strides
// over the rows and columns of input 2, or none.
void add_product(LowerContext& node, const TensorDesc& a, const TensorDesc& b, const TensorDesc& y, const std::optional<Strides>& c = {},
                 const ProductFactors& factors = {});

}  // namespace pumice

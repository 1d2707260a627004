// A tensor seen as images of channels of rows: what the kernels over planes are told, in any layout that strides describe.
#pragma once

#include "core/tensor_desc.h"
#include "operators/lowering.h"

namespace pumice {

// Sizes and strides (in elements); a tensor of rank 3 is one row high.
struct Planes {
  int64_t n, c, h, w;
  int64_t sn, sc, sh, sw;

  int64_t elements() const { return n * c * h * w; }
  // Four neighbouring channels are one aligned vector.
  bool has_vec4_channels() const { return sc == 1 && c % 4 == 0 && sn % 4 == 0 && sh % 4 == 0 && sw % 4 == 0; }
};

// Rank 3 and 4; all further axes of a higher rank (or none, of rank 2) are folded into the width where they are dense.
// Throws UnsupportedError naming the node where they are not.
Planes planes_of(const NodeContext& node, const TensorDesc& desc);

// The push constants x_stride_n .. x_stride_c (prefix "x") of a kernel.
void set_strides(StepBuilder& step, char prefix, const Planes& planes);

}  // namespace pumice

// A tensor seen as images of channels of rows: what the kernels over planes are told, in any layout that strides describe.
#pragma once

#include "core/tensor_desc.h"
#include "operators/row/lowering.h"

namespace pumice {

// Sizes and strides (in elements); a tensor of rank 3 is one row high.
struct Planes {
  int64_t n, c, h, w;
  int64_t sn, sc, sh, sw;
  bool grouped = false;  // 8 channels lie together, and sc is from such a group to the next

  int64_t elements() const { return n * c * h * w; }
  // Whether neighbouring channels form aligned vectors of so many, at most 8.
  bool has_vector_channels(int64_t width) const {
    return (grouped ? sc % width == 0 : sc == 1) && c % width == 0 && sn % width == 0 && sh % width == 0 && sw % width == 0;
  }
};

// A tensor of rank 3 or 4 as planes. All further axes of a higher rank (or none, of rank 2) are folded into the width where they are dense.
// Throws UnsupportedError naming the node where they are not.
Planes planes_of(const NodeContext& node, const TensorDesc& desc);

// The push constants x_stride_n .. x_stride_c (prefix "x") of a kernel.
void set_strides(StepBuilder& step, char prefix, const Planes& planes);

}  // namespace pumice

// Views of tensors as [N, C, H, W] with strides.
#pragma once

#include "core/tensor_desc.h"
#include "operators/table/lowering.h"

namespace pumice {

// A tensor viewed as [N, C, H, W]: sizes, and strides in elements. A tensor of rank 3 has h = 1.
struct NchwView {
  int64_t n, c, h, w;
  int64_t sn, sc, sh, sw;
  bool grouped = false;  // channels are stored in blocks of 8; sc is the stride of a block

  int64_t elements() const { return n * c * h * w; }
  // Whether adjacent channels form aligned vectors of `width` elements, at most 8.
  bool has_vector_channels(int64_t width) const {
    return (grouped ? sc % width == 0 : sc == 1) && c % width == 0 && sn % width == 0 && sh % width == 0 && sw % width == 0;
  }
};

// Views a tensor of rank 2 or more as [N, C, H, W]. From rank 5, all spatial axes are merged into W. Throws UnsupportedError if they are
// not contiguous.
NchwView make_nchw_view(const NodeContext& node, const TensorDesc& desc);

// Sets the push constants x_stride_n .. x_stride_c (prefix "x") of a kernel.
void set_strides(StepBuilder& step, char prefix, const NchwView& planes);

}  // namespace pumice

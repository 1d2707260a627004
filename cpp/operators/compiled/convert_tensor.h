// Device-side copies and dtype conversions of whole tensors, as requested by users.
#pragma once

#include "device/tensor.h"

namespace pumice {

// Returns a packed copy with its own memory.
Tensor packed_copy(const Tensor& source, const InterruptCallback& interrupted = {});
// Returns a packed copy converted by the operator Cast. Throws UnsupportedError naming a dtype that Cast does not support.
Tensor convert_dtype(const Tensor& source, DType dtype, const InterruptCallback& interrupted = {});

}  // namespace pumice

// Device-side copies and dtype conversions of whole tensors, as requested by users.
#pragma once

#include "device/tensor.h"

namespace pumice {

// Returns a packed copy of the tensor in newly allocated memory.
Tensor make_packed_copy(const Tensor& source, const InterruptCallback& interrupted = {});
// Returns a packed copy converted to `dtype` by the operator Cast. Throws an UnsupportedError that names a dtype that Cast does not
// support.
Tensor convert_dtype(const Tensor& source, DType dtype, const InterruptCallback& interrupted = {});

}  // namespace pumice

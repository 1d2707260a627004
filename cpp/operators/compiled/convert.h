// Copies of whole tensors made on the device, as users ask for them one by one.
#pragma once

#include "device/tensor.h"

namespace pumice {

// A packed copy, with memory of its own.
Tensor packed_copy(const Tensor& source, const Interrupted& interrupted = {});
// A packed copy of another dtype, as the operator Cast converts (UnsupportedError names a dtype that it does not take).
Tensor converted(const Tensor& source, DType dtype, const Interrupted& interrupted = {});

}  // namespace pumice

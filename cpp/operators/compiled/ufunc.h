// NumPy's elementwise functions (ufuncs) on whole tensors. Each call runs one elementwise operator eagerly.
#pragma once

#include <string_view>
#include <vector>

#include "device/tensor.h"

namespace pumice {

// Runs a ufunc and returns its result, a packed tensor in new memory. `operation`: the name of the ufunc ("add", "floor_divide", "less",
// "invert" ..). `types`: the input types of the loop that NumPy selects, to which the operands are converted. `result`: the output type of
// that loop. Operands broadcast. Integers wrap around. An integer division by 0 yields 0 with remainder 0, as in NumPy, but without a
// warning. `interrupted`: see pumice::upload. Throws UnsupportedError for an unknown operation or loop and for types without device
// arithmetic, BindingError (M3) if the tensors belong to different contexts, GraphError if the shapes do not broadcast.
Tensor run_ufunc(std::string_view operation, const std::vector<Tensor>& operands, const std::vector<DType>& types, DType result,
                 const InterruptCallback& interrupted = {});

// Whether any element (or all elements) of the tensor are nonzero. For an empty tensor, any_nonzero() is false and all_nonzero() is true.
bool any_nonzero(const Tensor& tensor, const InterruptCallback& interrupted = {});
bool all_nonzero(const Tensor& tensor, const InterruptCallback& interrupted = {});

}  // namespace pumice

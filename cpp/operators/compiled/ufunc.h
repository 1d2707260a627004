// NumPy's elementwise operations on whole tensors. Each is a single-expression operator that runs immediately.
#pragma once

#include <string_view>
#include <vector>

#include "device/tensor.h"

namespace pumice {

// `operation`: the name of a ufunc ("add", "floor_divide", "less", "invert" ..). `types`: the input types of the loop that NumPy selects;
// operands are converted to them. `result`: its output type. Operands broadcast; the result is packed, with its own memory. Integers wrap
// around; integer division by 0 yields 0 with remainder 0, as in NumPy, without a warning. `interrupted` as in pumice::upload.
// Throws UnsupportedError for an unknown operation or loop and for types without device arithmetic, BindingError (M3) if the tensors belong
// to different contexts, GraphError if the shapes do not broadcast.
Tensor run_ufunc(std::string_view operation, const std::vector<Tensor>& operands, const std::vector<DType>& types, DType result,
                 const InterruptCallback& interrupted = {});

// Whether any element is nonzero, and whether all elements are. For an empty tensor, false and true.
bool any_nonzero(const Tensor& tensor, const InterruptCallback& interrupted = {});
bool all_nonzero(const Tensor& tensor, const InterruptCallback& interrupted = {});

}  // namespace pumice

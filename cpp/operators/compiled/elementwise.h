// NumPy's elementwise operations on whole tensors, each an operator of one expression that runs at once.
#pragma once

#include <string_view>
#include <vector>

#include "device/tensor.h"

namespace pumice {

// `operation`: the name of a ufunc ("add", "floor_divide", "less", "invert" ..). `types`: the loop that NumPy runs for the operands, which
// are converted to these types first; `result` is that loop's type of the result. The operands broadcast; the result is packed, in memory
// of its own. Integers wrap around; those divided by 0 give 0, and 0 as their remainder, as in NumPy; no warning is given. `interrupted` as
// in pumice::upload.
// Throws UnsupportedError for an operation or a loop that there is not, and for types that the device does not compute in; BindingError
// (M3) for tensors of two contexts; GraphError for shapes that do not broadcast.
Tensor elementwise(std::string_view operation, const std::vector<Tensor>& operands, const std::vector<DType>& types, DType result,
                   const Interrupted& interrupted = {});

// Whether an element is not zero, and whether all are; of no elements false and true.
bool any_nonzero(const Tensor& tensor, const Interrupted& interrupted = {});
bool all_nonzero(const Tensor& tensor, const Interrupted& interrupted = {});

}  // namespace pumice

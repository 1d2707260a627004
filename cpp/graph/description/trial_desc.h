// Descriptions of values with sizes that shape inference tries. A trial may exceed a tensor's limits. It gives no answer then, which is no
// error of the graph.
#pragma once

#include <optional>

#include "graph/description/shape_inference.h"

namespace pumice {

// A description of trial_shape(); none where a tensor of those sizes would exceed the limits.
std::optional<TensorDesc> trial_desc(DType dtype, const Shape& shape, size_t trial);
// Describes the value in that trial by trial_desc(), where there is one.
void set_trial(ShapeInference& known, ValueId value, DType dtype, const Shape& shape, size_t trial);

}  // namespace pumice

// Descriptions of values with trial sizes. A trial that exceeds a tensor's limits is ignored; it is not an error in the graph.
#pragma once

#include <optional>

#include "graph/description/shape_inference.h"

namespace pumice {

// Returns a description with trial_shape(); nullopt if the tensor would exceed the limits.
std::optional<TensorDesc> trial_desc(DType dtype, const Shape& shape, size_t trial);
// Sets the value's trial_desc() for that trial, if it has one.
void set_trial(ShapeInference& known, ValueId value, DType dtype, const Shape& shape, size_t trial);

}  // namespace pumice

// Tensor descriptions with trial sizes. A trial that exceeds the limits of a tensor is ignored; it is not an error in the graph.
#pragma once

#include <optional>

#include "graph/description/shape_inference.h"

namespace pumice {

// Returns a description with the shape from make_trial_shape(); nullopt if the tensor would exceed the limits.
std::optional<TensorDesc> make_trial_desc(DType dtype, const Shape& shape, size_t trial);
// Sets the description of a value for one trial, unless it would exceed the limits.
void set_trial_desc(ShapeInference& known, ValueId value, DType dtype, const Shape& shape, size_t trial);

}  // namespace pumice

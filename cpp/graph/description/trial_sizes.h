// The sizes that shape inference tries for unknown axes: see shape_inference.h. A trial may exceed a tensor's limits. It gives no answer
// then, which is no error of the graph.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "graph/description/shape_inference.h"

namespace pumice {

// A description of trial_shape(); none where a tensor of those sizes would exceed the limits.
std::optional<TensorDesc> trial_desc(DType dtype, const Shape& shape, size_t trial);
// Describes the value in that trial by trial_desc(), where there is one.
void set_trial(ShapeInference& known, ValueId value, DType dtype, const Shape& shape, size_t trial);

// Sizes for an axis, and for a first axis, by trial. Tests try others: whether a graph is accepted must not depend on the choice.
struct TrialSizes {
  std::array<int64_t, kTrials> sizes, batches;
};
// None: the default. Not while another thread adds nodes to a graph.
void set_trial_sizes(const std::optional<TrialSizes>& tried);

}  // namespace pumice

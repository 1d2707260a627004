#include "graph/description/trial_desc.h"

#include <utility>

#include "core/error.h"

namespace pumice {

std::optional<TensorDesc> trial_desc(DType dtype, const Shape& shape, size_t trial) {
  try {
    return TensorDesc(dtype, trial_shape(shape, trial));
  } catch (const GraphError&) {
    return {};
  }
}

void set_trial(ShapeInference& known, ValueId value, DType dtype, const Shape& shape, size_t trial) {
  if (auto desc = trial_desc(dtype, shape, trial)) known.set(value, std::move(*desc));
}

}  // namespace pumice

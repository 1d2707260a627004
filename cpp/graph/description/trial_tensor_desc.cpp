#include "graph/description/trial_tensor_desc.h"

#include <utility>

#include "core/error.h"

namespace pumice {

std::optional<TensorDesc> make_trial_desc(DType dtype, const Shape& shape, size_t trial) {
  try {
    return TensorDesc(dtype, make_trial_shape(shape, trial));
  } catch (const GraphError&) {
    return {};
  }
}

void set_trial_desc(ShapeInference& known, ValueId value, DType dtype, const Shape& shape, size_t trial) {
  if (auto desc = make_trial_desc(dtype, shape, trial)) known.set(value, std::move(*desc));
}

}  // namespace pumice

#include "operators/common/nchw_view.h"

#include <string>

#include "core/error.h"

namespace pumice {

NchwView make_nchw_view(const NodeContext& node, const TensorDesc& desc) {
  const auto &shape = desc.shape, &strides = desc.strides;
  if (desc.rank() == 2) return {shape[0], shape[1], 1, 1, strides[0], strides[1], 0, 0};
  if (desc.rank() == 3) return {shape[0], shape[1], 1, shape[2], strides[0], strides[1], 0, strides[2]};
  if (desc.rank() == 4) return {shape[0], shape[1], shape[2], shape[3], strides[0], strides[1], strides[2], strides[3]};
  NchwView planes{shape[0], shape[1], 1, 1, strides[0], strides[1], 0, strides.back()};
  for (size_t axis = shape.size(); axis-- > 2;) {
    if (shape[axis] != 1 && strides[axis] != planes.w * strides.back())
      throw UnsupportedError("node '" + std::string(node.node) + "': a strided tensor of rank " + std::to_string(desc.rank()) + ", " +
                             to_string(desc));
    planes.w *= shape[axis];
  }
  return planes;
}

void set_strides(StepBuilder& step, char prefix, const NchwView& planes) {
  const std::string name(1, prefix);
  step.set(name + "_stride_n", planes.sn)
      .set(name + "_stride_h", planes.sh)
      .set(name + "_stride_w", planes.sw)
      .set(name + "_stride_c", planes.sc);
}

}  // namespace pumice

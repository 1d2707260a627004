#include "operators/geometry/strided_views.h"

namespace pumice {
namespace {

// Returns strides that view x with another shape; nullopt if that is impossible without a copy.
std::optional<Strides> compute_reshape_strides(const TensorDesc& x, const Shape& shape) {
  Strides strides(shape.size(), 1);
  size_t out = shape.size();
  for (size_t in = x.shape.size(); in-- > 0;) {
    if (x.shape[in] == 1) continue;
    const int64_t step = x.strides[in];
    int64_t run = x.shape[in];
    for (; in > 0 && (x.shape[in - 1] == 1 || x.strides[in - 1] == step * run); --in) run *= x.shape[in - 1];
    int64_t inner = 1;
    for (; inner < run && out > 0; inner *= shape[out]) strides[--out] = step * inner;
    if (inner != run) return {};
  }
  return strides;
}

}  // namespace

Strides compute_transpose_strides(const Attributes& transpose, const TensorDesc& x) {
  Strides strides;
  for (const int64_t axis : transpose.integers("perm"))
    strides.push_back(x.strides[static_cast<size_t>(axis < 0 ? axis + x.rank() : axis)]);
  if (strides.empty()) strides.assign(x.strides.rbegin(), x.strides.rend());
  return strides;
}

StridedViews make_reshape_view(const Attributes&, const TensorDesc& x, const std::vector<const TensorDesc*>& outputs) {
  auto strides = compute_reshape_strides(x, outputs[0]->shape);
  if (!strides) return {};
  return std::vector<StridedView>{{std::move(*strides)}};
}

StridedViews make_transpose_view(const Attributes& attributes, const TensorDesc& x, const std::vector<const TensorDesc*>&) {
  return std::vector<StridedView>{{compute_transpose_strides(attributes, x)}};
}

StridedViews make_split_views(const Attributes& attributes, const TensorDesc& x, const std::vector<const TensorDesc*>& outputs) {
  const int64_t declared_axis = attributes.integer("axis", 0);
  const auto axis = static_cast<size_t>(declared_axis < 0 ? declared_axis + x.rank() : declared_axis);
  std::vector<StridedView> views;
  int64_t begin = 0;
  for (const TensorDesc* y : outputs) {
    if (!y) return {};  // the split sizes are unknown if an output is omitted
    views.push_back({x.strides, begin * x.strides[axis]});
    begin += y->shape[axis];
  }
  return views;
}

bool have_same_strides(const Shape& shape, const Strides& a, const Strides& b) {
  for (size_t i = 0; i < shape.size(); ++i)
    if (shape[i] > 1 && a[i] != b[i]) return false;
  return true;
}

}  // namespace pumice

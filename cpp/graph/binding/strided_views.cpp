#include "graph/binding/strided_views.h"

#include <algorithm>

#include "operators/row/families.h"
#include "operators/row/layout.h"
#include "operators/row/operator_table.h"

namespace pumice {
namespace {

// The strides by which x has another shape: each of its axes, or several that lie one within the other, are axes of the result.
std::optional<Strides> reshaped(const TensorDesc& x, const Shape& shape) {
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

bool rearranges(const ProgramNode& node) {
  return node.row->skeleton == Skeleton::view || node.row->lower == &lower_transpose || node.row->lower == &lower_split;
}

std::optional<std::vector<StridedView>> strided_views(const ProgramNode& node, const TensorDesc& x,
                                                      const std::vector<const TensorDesc*>& outputs) {
  std::vector<StridedView> views;
  if (node.row->lower == &lower_split) {
    const int64_t given = node.attributes.integer("axis", 0);
    const auto axis = static_cast<size_t>(given < 0 ? given + x.rank() : given);
    int64_t begin = 0;
    for (const TensorDesc* y : outputs) {
      if (!y) return {};  // how long it would be is not known here
      views.push_back({x.strides, begin * x.strides[axis]});
      begin += y->shape[axis];
    }
    return views;
  }
  if (node.row->lower == &lower_transpose) return std::vector<StridedView>{{transposed_strides(node.attributes, x)}};
  auto strides = reshaped(x, outputs[0]->shape);
  if (!strides) return {};
  return std::vector<StridedView>{{std::move(*strides)}};
}

bool same_strides(const Shape& shape, const Strides& a, const Strides& b) {
  for (size_t i = 0; i < shape.size(); ++i)
    if (shape[i] > 1 && a[i] != b[i]) return false;
  return true;
}

}  // namespace pumice

// Lowers Resize. Nearest mode gathers along all axes at once; interpolation processes one axis at a time. The host computes the
// interpolation tables in double precision.
#include <algorithm>

#include "core/error.h"
#include "operators/common/strided_copy.h"
#include "operators/common/table_gather.h"
#include "operators/geometry/resize_geometry.h"
#include "operators/index/lowerings.h"
#include "operators/resize/lowerings.h"
#include "operators/table/host_tensor_access.h"
#include "operators/table/operator_table.h"

namespace pumice {
namespace {

std::vector<ResizeAxis> get_resize_axes(const LowerContext& node) {
  const auto host_input = [&](size_t i) -> const HostTensor* {
    if (!node.has_input(i)) return nullptr;
    if (!node.host_tensor(i))
      throw UnsupportedError("node '" + std::string(node.node) + "': input " + std::to_string(i) + " of Resize must be known on the host");
    return node.host_tensor(i);
  };
  const HostTensor *roi = host_input(1), *scales = host_input(2), *sizes = host_input(3);
  using Reals = std::vector<double>;
  return compute_resize_axes(node.node, *node.attributes, node.input(0).shape, roi ? roi->as_double() : Reals(),
                             scales ? scales->as_double() : Reals(), sizes ? sizes->as_int64() : std::vector<int64_t>());
}

void add_nearest_resize(LowerContext& node, const std::vector<ResizeAxis>& axes) {
  IndexTables tables(axes.size());
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i].resized) tables[i] = make_resize_table(axes[i], *node.attributes).indices;
  HostTensorWriter outside(TensorDesc(node.output(0).dtype, {}));
  outside.store(0, node.attributes->real("extrapolation_value"));
  add_table_gather(node, node.input(0).shape, node.output(0).shape, tables, outside.take());
}

// Resizes axis by axis, starting with the axes that shrink most, to keep intermediates small.
void add_interpolation_passes(LowerContext& node, const std::vector<ResizeAxis>& axes) {
  const DType dtype = node.output(0).dtype;
  std::vector<size_t> order;
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i].resized) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return axes[a].scale < axes[b].scale; });
  Shape shape = node.input(0).shape;
  const Operand y = get_contiguous_output(node, 0);
  Operand from = get_contiguous_input(node, 0);
  for (size_t pass = 0; pass < order.size(); ++pass) {
    const ResizeAxis& axis = axes[order[pass]];
    const bool first = pass == 0, last = pass + 1 == order.size();
    const ResizeTable table = make_resize_table(axis, *node.attributes);
    node.check_loop_limit(static_cast<int64_t>(2 * table.taps));
    shape[order[pass]] = axis.size;
    const Operand to = last ? y : node.add_temporary(buffer_size(DType::float32, shape));
    StepBuilder step(node.kernel("resample.comp", dtype, {{"FIRST", first ? "1" : "0"}, {"LAST", last ? "1" : "0"}}));
    step.bind("x", from)
        .bind("y", to)
        .bind("indices", add_host_array(node, table.indices))
        .bind("weights", add_host_array(node, table.weights));
    const int64_t elements = element_count(shape), grain = last && is_16bit_float(dtype) ? 2 : 1;
    step.set("elements", elements).set("inner", packed_strides(shape)[order[pass]]).set("size", axis.size).set("x_size", axis.x_size);
    step.set("taps", table.taps).set("outside", node.attributes->real("extrapolation_value"));
    node.add(step.set_threads(static_cast<uint64_t>((elements + grain - 1) / grain)).build());
    from = to;
  }
  copy_contiguous_output(node, 0, y);
}

}  // namespace

void lower_resize(LowerContext& node) {
  const DType dtype = node.input(0).dtype;
  const auto axes = get_resize_axes(node);
  if (node.output(0).elements() == 0) return;
  if (std::none_of(axes.begin(), axes.end(), [](const ResizeAxis& axis) { return axis.resized; })) return lower_copy(node);
  const std::string mode = node.attributes->text("mode");
  if (mode == "nearest") return add_nearest_resize(node, axes);
  if (!is_operator_float(dtype))
    throw UnsupportedError("node '" + std::string(node.node) + "': Resize with mode '" + mode + "' of " + std::string(name(dtype)));
  add_interpolation_passes(node, axes);
}

}  // namespace pumice

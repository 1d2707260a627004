#include "operators/common/split_axes.h"

#include <algorithm>

#include "operators/table/operator_table.h"

namespace pumice {

int64_t CutWindow::extent() const {
  return (geometry.kernel[spatial] - 1) * geometry.dilations[spatial] + 1;
}

AxisPart CutWindow::read(const AxisPart& made) const {
  const int64_t stride = geometry.strides[spatial], padded = made.begin + geometry.pads_begin[spatial];
  if (!transposed) return {made.begin * stride - geometry.pads_begin[spatial], (made.count - 1) * stride + extent()};
  // Start at the first input that reaches the part, or else at the last one that starts before it.
  const int64_t begin = padded < extent() ? 0 : std::min((padded - extent() + stride) / stride, padded / stride);
  return {begin, (padded + made.count - 1) / stride + 1 - begin};
}

AxisPart CutWindow::read_inside(const AxisPart& made) const {
  const AxisPart all = read(made);
  const int64_t begin = std::clamp<int64_t>(all.begin, 0, size), end = std::clamp<int64_t>(all.begin + all.count, 0, size);
  return {begin, end - begin};
}

int64_t CutWindow::most_read(int64_t count) const {
  const int64_t stride = geometry.strides[spatial];
  return std::min(size, transposed ? (count + extent() - 2) / stride + 2 : (count - 1) * stride + extent());
}

void CutWindow::set_pads(const AxisPart& made, Attributes& attributes) const {
  const size_t axes = geometry.kernel.size();
  std::vector<int64_t> pads = geometry.pads_begin, more(axes, 0);
  pads.insert(pads.end(), geometry.pads_end.begin(), geometry.pads_end.end());
  const AxisPart inside = read_inside(made);
  if (transposed) {
    const int64_t stride = geometry.strides[spatial], whole = (inside.count - 1) * stride + extent();
    const int64_t before = made.begin + geometry.pads_begin[spatial] - inside.begin * stride, behind = whole - before - made.count;
    more = attributes.integers("output_padding");
    more.resize(axes, 0);
    pads[spatial] = before, pads[axes + spatial] = std::max<int64_t>(behind, 0), more[spatial] = std::max<int64_t>(-behind, 0);
    attributes.set("output_padding", more);
  } else {
    const AxisPart all = read(made);
    pads[spatial] = inside.begin - all.begin;
    pads[axes + spatial] = all.begin + all.count - inside.begin - inside.count;
  }
  attributes.set("pads", pads);
  if (attributes.has("auto_pad")) attributes.set("auto_pad", std::string("NOTSET"));
}

int broadcast_axis(const TensorDesc& operand, int axis, int rank) {
  const int own = axis - (rank - operand.rank());
  return own >= 0 && operand.shape[static_cast<size_t>(own)] > 1 ? own : kWhole;
}

CutAxis own_axis(const LowerContext& node, int axis) {
  CutAxis made{node.input(kData).shape[static_cast<size_t>(axis)], std::vector<int>(node.inputs.size(), kWhole), {}, {}};
  made.inputs[kData] = axis;
  for (const auto& output : node.outputs) made.outputs.push_back(output ? axis : kWhole);
  return made;
}

int counted_axis(int64_t axis, int rank) {
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

void cut_maps(const LowerContext& node, std::vector<CutAxis>& axes) {
  const TensorDesc& y = node.output(0);
  for (int axis = 0; axis < y.rank(); ++axis) {
    CutAxis& cut = axes.emplace_back(y.shape[static_cast<size_t>(axis)], std::vector<int>(node.inputs.size(), kWhole), std::vector{axis});
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (node.has_input(i) && (i == kData || !node.row->casts)) cut.inputs[i] = broadcast_axis(node.input(i), axis, y.rank());
  }
}

void cut_beside_axis(const LowerContext& node, std::vector<CutAxis>& axes) {
  const int bound = counted_axis(node.attributes->integer("axis", -1), node.input(kData).rank());
  cut_others(node, axes, [&](int axis) { return axis == bound; });
}

void cut_images(const LowerContext& node, std::vector<CutAxis>& axes) {
  axes.push_back(own_axis(node, 0));
}

void cut_before_matrices(const LowerContext& node, std::vector<CutAxis>& axes) {
  const int rank = node.input(kData).rank();
  cut_others(node, axes, [&](int axis) { return axis >= rank - 2; });
}

void cut_planes(const LowerContext& node, std::vector<CutAxis>& axes) {
  for (const int axis : {0, 1}) axes.push_back(own_axis(node, axis));
}

void cut_windows(const LowerContext& node, const WindowGeometry& geometry, std::vector<CutAxis>& axes, bool transposed) {
  const TensorDesc &x = node.input(kData), &y = node.output(0);
  for (size_t i = 0; i < geometry.kernel.size(); ++i) {
    const int axis = static_cast<int>(i) + 2;
    CutAxis& cut = axes.emplace_back(own_axis(node, axis));
    cut.size = y.shape[i + 2];
    cut.window = CutWindow{geometry, i, x.shape[i + 2], transposed};
  }
}

std::vector<CutAxis> cut_axes(const LowerContext& node) {
  std::vector<CutAxis> axes;
  if (node.row->cut) node.row->cut(node, axes);
  for (CutAxis& axis : axes) {
    axis.inputs.resize(node.inputs.size(), kWhole);
    axis.outputs.resize(node.outputs.size(), kWhole);
  }
  return axes;
}

}  // namespace pumice

#include "operators/common/split_axes.h"

#include <algorithm>

#include "operators/table/operator_table.h"

namespace pumice {

int64_t SplitWindow::extent() const {
  return (geometry.kernel[spatial] - 1) * geometry.dilations[spatial] + 1;
}

AxisRange SplitWindow::input_range(const AxisRange& output_range) const {
  const int64_t stride = geometry.strides[spatial], padded = output_range.begin + geometry.pads_begin[spatial];
  if (!transposed) return {output_range.begin * stride - geometry.pads_begin[spatial], (output_range.count - 1) * stride + extent()};
  // Start at the first input that contributes to the range, or at the last input before the range if there is none.
  const int64_t begin = padded < extent() ? 0 : std::min((padded - extent() + stride) / stride, padded / stride);
  return {begin, (padded + output_range.count - 1) / stride + 1 - begin};
}

AxisRange SplitWindow::get_clamped_input_range(const AxisRange& output_range) const {
  const AxisRange all = input_range(output_range);
  const int64_t begin = std::clamp<int64_t>(all.begin, 0, size), end = std::clamp<int64_t>(all.begin + all.count, 0, size);
  return {begin, end - begin};
}

int64_t SplitWindow::get_max_input_size(int64_t count) const {
  const int64_t stride = geometry.strides[spatial];
  return std::min(size, transposed ? (count + extent() - 2) / stride + 2 : (count - 1) * stride + extent());
}

void SplitWindow::set_pads(const AxisRange& output_range, Attributes& attributes) const {
  const size_t axes = geometry.kernel.size();
  std::vector<int64_t> pads = geometry.pads_begin, more(axes, 0);
  pads.insert(pads.end(), geometry.pads_end.begin(), geometry.pads_end.end());
  const AxisRange inside = get_clamped_input_range(output_range);
  if (transposed) {
    const int64_t stride = geometry.strides[spatial], whole = (inside.count - 1) * stride + extent();
    const int64_t before = output_range.begin + geometry.pads_begin[spatial] - inside.begin * stride,
                  after = whole - before - output_range.count;
    more = attributes.integers("output_padding");
    more.resize(axes, 0);
    pads[spatial] = before, pads[axes + spatial] = std::max<int64_t>(after, 0), more[spatial] = std::max<int64_t>(-after, 0);
    attributes.set("output_padding", more);
  } else {
    const AxisRange all = input_range(output_range);
    pads[spatial] = inside.begin - all.begin;
    pads[axes + spatial] = all.begin + all.count - inside.begin - inside.count;
  }
  attributes.set("pads", pads);
  if (attributes.has("auto_pad")) attributes.set("auto_pad", std::string("NOTSET"));
}

int find_broadcast_axis(const TensorDesc& operand, int axis, int rank) {
  const int operand_axis = axis - (rank - operand.rank());
  return operand_axis >= 0 && operand.shape[static_cast<size_t>(operand_axis)] > 1 ? operand_axis : kNotSplit;
}

SplitAxis make_split_axis(const LowerContext& node, int axis) {
  SplitAxis axis_split{node.input(kData).shape[static_cast<size_t>(axis)], std::vector<int>(node.inputs.size(), kNotSplit), {}, {}};
  axis_split.inputs[kData] = axis;
  for (const auto& output : node.outputs) axis_split.outputs.push_back(output ? axis : kNotSplit);
  return axis_split;
}

int normalize_axis(int64_t axis, int rank) {
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

void append_elementwise_split_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const TensorDesc& y = node.output(0);
  for (int axis = 0; axis < y.rank(); ++axis) {
    SplitAxis& split =
        axes.emplace_back(y.shape[static_cast<size_t>(axis)], std::vector<int>(node.inputs.size(), kNotSplit), std::vector{axis});
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (node.has_input(i) && (i == kData || !node.row->casts)) split.inputs[i] = find_broadcast_axis(node.input(i), axis, y.rank());
  }
}

void append_axes_except_axis_attribute(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const int fixed_axis = normalize_axis(node.attributes->integer("axis", -1), node.input(kData).rank());
  append_axes_except(node, axes, [&](int axis) { return axis == fixed_axis; });
}

void append_batch_axis(const LowerContext& node, std::vector<SplitAxis>& axes) {
  axes.push_back(make_split_axis(node, 0));
}

void append_axes_except_last_two(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const int rank = node.input(kData).rank();
  append_axes_except(node, axes, [&](int axis) { return axis >= rank - 2; });
}

void append_batch_and_channel_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  for (const int axis : {0, 1}) axes.push_back(make_split_axis(node, axis));
}

void append_window_axes(const LowerContext& node, const WindowGeometry& geometry, std::vector<SplitAxis>& axes, bool transposed) {
  const TensorDesc &x = node.input(kData), &y = node.output(0);
  for (size_t i = 0; i < geometry.kernel.size(); ++i) {
    const int axis = static_cast<int>(i) + 2;
    SplitAxis& split = axes.emplace_back(make_split_axis(node, axis));
    split.size = y.shape[i + 2];
    split.window = SplitWindow{geometry, i, x.shape[i + 2], transposed};
  }
}

std::vector<SplitAxis> find_split_axes(const LowerContext& node) {
  std::vector<SplitAxis> axes;
  if (node.row->split) node.row->split(node, axes);
  for (SplitAxis& axis : axes) {
    axis.inputs.resize(node.inputs.size(), kNotSplit);
    axis.outputs.resize(node.outputs.size(), kNotSplit);
  }
  return axes;
}

}  // namespace pumice

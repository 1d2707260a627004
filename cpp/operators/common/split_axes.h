// Axes along which an operator's results are independent, used to split a node into chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "operators/geometry/window_geometry.h"
#include "operators/table/lowering.h"

namespace pumice {

inline constexpr int kNotSplit = -1;  // marks an operand that every chunk reads completely
inline constexpr size_t kData = 0;    // input whose axes OperatorRow::split numbers

// A range of indices along an axis.
struct AxisRange {
  int64_t begin = 0, count = 0;
};

// Sliding windows along a spatial axis of input 0. The input ranges of adjacent output chunks overlap, and each chunk has its own padding.
struct SplitWindow {
  WindowGeometry geometry;
  size_t spatial = 0;       // index of the axis in the window geometry
  int64_t size = 0;         // size of the input axis
  bool transposed = false;  // transposed convolution: the windows slide over the output

  AxisRange get_clamped_input_range(
      const AxisRange& output_range) const;         // input range that a chunk reads, clamped to the input; may be empty
  int64_t get_max_input_size(int64_t count) const;  // maximum number of input elements that `count` outputs read
  // Sets the chunk's pads and, for a transposed convolution, output_padding.
  void set_pads(const AxisRange& output_range, Attributes& attributes) const;

 private:
  int64_t extent() const;
  AxisRange input_range(const AxisRange& output_range) const;  // input range that a chunk reads; may exceed the input on both sides
};

struct SplitAxis {
  int64_t size = 0;                   // size of the axis to split
  std::vector<int> inputs, outputs;   // for each operand, the axis to split, or kNotSplit
  std::optional<SplitWindow> window;  // set if the input ranges of chunks overlap (sliding windows)
  int64_t unit = 1;                   // number of elements on the operands' axes per unit of `size`
  std::string_view counts = {};       // attribute that contains `size`
  bool packs_vectors = false;         // the inputs that are split are vectors, packed as float32 if constant
};

// Returns the axes from OperatorRow::split. The list is empty if every result depends on the whole input, or if the operator splits large
// tensors itself.
std::vector<SplitAxis> find_split_axes(const LowerContext& node);

// Returns the operand's axis that corresponds to `axis` of a result with `rank` axes; kNotSplit if the operand is broadcast along it.
int find_broadcast_axis(const TensorDesc& operand, int axis, int rank);

// Helpers for rules of OperatorRow::split.

// Returns a SplitAxis that splits input 0 and all outputs along `axis`. Every chunk reads all other operands completely.
SplitAxis make_split_axis(const LowerContext& node, int axis);

// Normalises an axis to 0 .. rank - 1.
int normalize_axis(int64_t axis, int rank);

// Appends the axes of input 0 for which `is_bound(axis)` is false.
template <typename IsBound>
void append_axes_except(const LowerContext& node, std::vector<SplitAxis>& axes, const IsBound& is_bound) {
  for (int axis = 0; axis < node.input(kData).rank(); ++axis)
    if (!is_bound(axis)) axes.push_back(make_split_axis(node, axis));
}

// Appends the axes of input 0 that a reduction keeps. `reduced(axis)` returns whether an axis is reduced.
template <typename IsReduced>
void append_kept_axes(const LowerContext& node, std::vector<SplitAxis>& axes, const IsReduced& reduced) {
  const TensorDesc &x = node.input(kData), &y = node.output(0);
  int y_axis = 0;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (!reduced(axis)) {
      axes.push_back(make_split_axis(node, axis));
      axes.back().outputs = {y_axis};
    }
    if (!reduced(axis) || x.rank() == y.rank()) ++y_axis;
  }
}

// Appends the spatial axes of a sliding-window operator. The windows of a transposed convolution slide over the output.
void append_window_axes(const LowerContext& node, const WindowGeometry& geometry, std::vector<SplitAxis>& axes, bool transposed = false);

// Rules shared by several operator families.

// Appends all axes of an elementwise operator, whose operands may be broadcast.
void append_elementwise_split_axes(const LowerContext& node, std::vector<SplitAxis>& axes);
// Appends all axes except the one in attribute "axis" (default: the last axis).
void append_axes_except_axis_attribute(const LowerContext& node, std::vector<SplitAxis>& axes);
// Appends the first axis (batch).
void append_batch_axis(const LowerContext& node, std::vector<SplitAxis>& axes);
// Appends all axes except the last two.
void append_axes_except_last_two(const LowerContext& node, std::vector<SplitAxis>& axes);
// Appends the batch and channel axes.
void append_batch_and_channel_axes(const LowerContext& node, std::vector<SplitAxis>& axes);

}  // namespace pumice

// Axes along which an operator's results are independent, used to split a node into parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "operators/geometry/window_geometry.h"
#include "operators/table/lowering.h"

namespace pumice {

inline constexpr int kWhole = -1;   // axis of an operand that every part reads completely
inline constexpr size_t kData = 0;  // input whose axes the rules refer to

// A range along an axis.
struct AxisPart {
  int64_t begin = 0, count = 0;
};

// Windows over a spatial axis of input 0: the input ranges of adjacent output parts overlap, and each part has its own padding.
struct CutWindow {
  WindowGeometry geometry;
  size_t spatial = 0;       // index of the axis in the window geometry
  int64_t size = 0;         // size of the input axis
  bool transposed = false;  // the windows are over the output

  AxisPart read_inside(const AxisPart& made) const;  // input range that a part reads, clamped to the input; may be empty
  int64_t most_read(int64_t count) const;            // most input elements that `count` outputs read
  // Sets the part's pads and, for a transposed convolution, output_padding.
  void set_pads(const AxisPart& made, Attributes& attributes) const;

 private:
  int64_t extent() const;
  AxisPart read(const AxisPart& made) const;  // input range that a part reads; may exceed the input on both sides
};

struct CutAxis {
  int64_t size = 0;                  // size of the axis to split
  std::vector<int> inputs, outputs;  // axis to split of each operand, or kWhole
  std::optional<CutWindow> window;   // how input 0 is split; none: like the other operands
  int64_t unit = 1;                  // elements on the operands' axes per unit of `size`
  std::string_view counts = {};      // attribute that contains `size`
  bool packs_vectors = false;        // split inputs are vectors, packed as float32 if constant
};

// Returns the axes from the operator's rule; empty if the results depend on all inputs, or if the operator splits its tensors itself.
std::vector<CutAxis> cut_axes(const LowerContext& node);

// The axis of an operand that broadcasts to axis `axis` of a tensor of `rank` axes; kWhole if it is repeated along it.
int broadcast_axis(const TensorDesc& operand, int axis, int rank);

// Helpers for rules of OperatorRow::cut.

// An axis of input 0 that all outputs have; the other operands are read completely.
CutAxis own_axis(const LowerContext& node, int axis);

// Normalises an axis to 0 .. rank - 1.
int counted_axis(int64_t axis, int rank);

// Appends all axes of input 0 except those for which `is_bound` is true.
template <typename IsBound>
void cut_others(const LowerContext& node, std::vector<CutAxis>& axes, const IsBound& is_bound) {
  for (int axis = 0; axis < node.input(kData).rank(); ++axis)
    if (!is_bound(axis)) axes.push_back(own_axis(node, axis));
}

// Appends the axes of input 0 that a reduction keeps; `reduced`: whether an axis is reduced.
template <typename IsReduced>
void cut_kept(const LowerContext& node, std::vector<CutAxis>& axes, const IsReduced& reduced) {
  const TensorDesc &x = node.input(kData), &y = node.output(0);
  int made = 0;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (!reduced(axis)) {
      axes.push_back(own_axis(node, axis));
      axes.back().outputs = {made};
    }
    if (!reduced(axis) || x.rank() == y.rank()) ++made;
  }
}

// Appends the spatial axes of windows, which for a transposed convolution are over the output.
void cut_windows(const LowerContext& node, const WindowGeometry& geometry, std::vector<CutAxis>& axes, bool transposed = false);

// Rules used by several families. All axes of an elementwise operator, with broadcast operands.
void cut_maps(const LowerContext& node, std::vector<CutAxis>& axes);
// All axes except the attribute "axis" (default: the last).
void cut_beside_axis(const LowerContext& node, std::vector<CutAxis>& axes);
// The first axis (batch).
void cut_images(const LowerContext& node, std::vector<CutAxis>& axes);
// All axes except the last two.
void cut_before_matrices(const LowerContext& node, std::vector<CutAxis>& axes);
// Batch and channels.
void cut_planes(const LowerContext& node, std::vector<CutAxis>& axes);

}  // namespace pumice

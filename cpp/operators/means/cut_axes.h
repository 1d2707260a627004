// Axes along which a row's results do not depend on each other, so that a node can be lowered in parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "operators/geometry/window_geometry.h"
#include "operators/row/lowering.h"

namespace pumice {

inline constexpr int kWhole = -1;   // stands for the axis of an operand that every part reads whole
inline constexpr size_t kData = 0;  // the input whose axes rules count

// Elements of one axis.
struct AxisPart {
  int64_t begin = 0, count = 0;
};

// Windows over a spatial axis of input 0: a part of the results reads more elements than it has, and has padding of its own.
struct CutWindow {
  WindowGeometry geometry;
  size_t spatial = 0;       // which of the geometry's axes
  int64_t size = 0;         // of the input
  bool transposed = false;  // the windows are those of the output

  AxisPart read_inside(const AxisPart& made) const;  // without the padding; empty where a part would read none
  int64_t most_read(int64_t count) const;            // by so many results
  // Makes pads, and of a transposed convolution output_padding, those of the part.
  void set_pads(const AxisPart& made, Attributes& attributes) const;

 private:
  int64_t extent() const;
  AxisPart read(const AxisPart& made) const;  // may begin before the input and end behind it
};

struct CutAxis {
  int64_t size = 0;                  // that is cut
  std::vector<int> inputs, outputs;  // by operand, its axis that is cut along, or kWhole
  std::optional<CutWindow> window;   // how input 0 goes along; none: as the others
  int64_t unit = 1;                  // elements of the operands' axes for each of `size`
  std::string_view counts = {};      // an attribute that is how many of `size` there are
  bool packs_vectors = false;        // inputs that go along are vectors, packed as float32 where they are constant
};

// The axes that the rule of the node's row gives; none for a row whose results depend on all that it reads, or that cuts its tensors
// itself.
std::vector<CutAxis> cut_axes(const LowerContext& node);

// The axis of an operand that meets axis `axis` of a tensor of `rank` axes, whole where it is repeated along it.
int broadcast_axis(const TensorDesc& operand, int axis, int rank);

// Rules for OperatorRow::cut are made of the next functions.

// An axis of input 0 that every output has too, with all other operands whole.
CutAxis own_axis(const LowerContext& node, int axis);

// An axis as 0 .. rank - 1, where a negative one counts from the end.
int counted_axis(int64_t axis, int rank);

// Appends all axes of input 0 but those that `is_bound` names.
template <typename IsBound>
void cut_others(const LowerContext& node, std::vector<CutAxis>& axes, const IsBound& is_bound) {
  for (int axis = 0; axis < node.input(kData).rank(); ++axis)
    if (!is_bound(axis)) axes.push_back(own_axis(node, axis));
}

// Appends the axes of input 0 that a reduction keeps; `reduced` tells of an axis whether it is folded.
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

// Appends the spatial axes that windows of that geometry go along; those of a transposed convolution lie over its output.
void cut_windows(const LowerContext& node, const WindowGeometry& geometry, std::vector<CutAxis>& axes, bool transposed = false);

// Rules that rows of several families have: all axes of a map, to which its operands broadcast,
void cut_maps(const LowerContext& node, std::vector<CutAxis>& axes);
// all axes but the one that the attribute "axis" names, by default the last,
void cut_beside_axis(const LowerContext& node, std::vector<CutAxis>& axes);
// the first axis (images of a batch),
void cut_images(const LowerContext& node, std::vector<CutAxis>& axes);
// all axes before the last two,
void cut_before_matrices(const LowerContext& node, std::vector<CutAxis>& axes);
// and images with their channels.
void cut_planes(const LowerContext& node, std::vector<CutAxis>& axes);

}  // namespace pumice

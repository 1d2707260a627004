// Along which axes a row's results do not depend on each other, so that it can be lowered in parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "operators/geometry/window_geometry.h"
#include "operators/row/lowering.h"

namespace pumice {

inline constexpr int kWhole = -1;  // of an operand that every part reads whole

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

// Those of the node's row; none for a row whose results depend on all that it reads, or that cuts its tensors itself.
std::vector<CutAxis> cut_axes(const LowerContext& node);

// The axis of an operand that meets axis `axis` of a tensor of `rank` axes, whole where it is repeated along it.
int broadcast_axis(const TensorDesc& operand, int axis, int rank);

}  // namespace pumice

// Cuts a contraction where one dispatch cannot take it whole: the grid would have too many workgroups on an axis, or a tensor has more
// bytes than a kernel binds.
#pragma once

#include <functional>

#include "operators/contraction/contraction_terms.h"

namespace pumice {

// A contraction and where its operands lie.
struct PlacedContraction {
  Contraction c;
  Operand x, w;
  ContractionBias bias;
  Operand y;

  int64_t pixels() const { return c.x.n * c.out_h * c.out_w; }
};

// Elements from the first that a contraction reads of x, or writes of y, to the last.
int64_t x_span(const Contraction& c);
int64_t y_span(const Contraction& c);
// Elements of the weights that it reads.
int64_t w_span(const NodeContext& node, const Contraction& c);

// The most that one dispatch takes.
struct DispatchRoom {
  int64_t pixels, groups;
  int64_t bytes;  // bytes of a tensor
};

using Parts = std::vector<PlacedContraction>;

// Cuts into parts of one block of channels of one group; none where that is the whole. `columns`: the channels that one dispatch takes of a
// matrix that is not packed in blocks, or 0.
Parts channel_parts(const NodeContext& node, const PlacedContraction& whole, int64_t columns);
// Cuts into parts of fewer images, groups, rows or pixels; none where there is room for the whole, or where no cut would make a tensor's
// part small enough. A part may have to be cut again.
Parts pixel_parts(const PlacedContraction& whole, const DispatchRoom& room);

}  // namespace pumice

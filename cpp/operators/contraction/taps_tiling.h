// Chooses how conv_taps, which multiplies all taps of few channels on matrix units, shares out a convolution.
#pragma once

#include <optional>
#include <vector>

#include "core/rounding.h"
#include "operators/contraction/contraction_terms.h"

namespace pumice {

// The pixels of an image and the output channels that a workgroup of conv_taps has at a time, and the channels of each of its subgroups.
struct TapsTiling {
  int64_t rows, columns, channels, sub_channels;

  static constexpr int64_t kShares = 4, kLanes = 32;  // subgroups that share the pixels; invocations of each

  int64_t invocations() const { return kLanes * kShares * (channels / sub_channels); }
  int64_t tiles(const Contraction& c) const { return c.x.n * ceil_div(c.out_h, rows) * ceil_div(c.out_w, columns); }
  // Workgroups on the first axis of the grid, each of which goes through as many tiles as the others, or one less.
  int64_t workgroups(const NodeContext& node, const Contraction& c) const;
  int64_t pitch(const Contraction& c) const;     // elements of the patch from a row to the next
  int64_t elements(const Contraction& c) const;  // of the patch
  int64_t loads(const Contraction& c) const;     // of an invocation for a tile
};

// Elements of the depth of such a convolution, in whole steps of a matrix unit.
int64_t taps_depth(const Contraction& c);

// The tilings that the device can run; empty for contractions that are no convolution of halves of few channels with several taps.
std::vector<TapsTiling> taps_tilings(const NodeContext& node, const Contraction& c);

// The one for convolutions of which this is the quickest kernel.
std::optional<TapsTiling> taps_tiling_of(const NodeContext& node, const Contraction& c);

// Whether an invocation's sums are stored as eight halves at once.
bool stores_eights(const TapsTiling& tiling, const Contraction& c);

}  // namespace pumice

// Chooses how conv_halo, which multiplies on matrix units what all taps of a convolution read from shared memory, shares out its work.
#pragma once

#include <optional>
#include <vector>

#include "core/rounding.h"
#include "operators/contraction/contraction_terms.h"

namespace pumice {

// The tile that a workgroup of conv_halo computes, that of each of its subgroups, the input channels that it has in shared memory, 32 for
// each plane, and whether a tap's weights are read while those before are multiplied.
struct HaloTiling {
  int64_t rows, columns, channels, sub_pixels, sub_channels, planes = 1;
  bool early = false;

  int64_t subgroups() const { return rows * columns / sub_pixels * (channels / sub_channels); }
  int64_t invocations() const { return subgroups() * 32; }
  int64_t tiles(const Contraction& c) const { return tiles(c.x.n, c.out_h, c.out_w); }
  int64_t tiles(int64_t images, int64_t out_h, int64_t out_w) const { return images * ceil_div(out_h, rows) * ceil_div(out_w, columns); }
  int64_t area(const Contraction& c) const;  // pixels that all taps read
  int64_t shared_bytes(const Contraction& c) const { return planes * (area(c) | 1) * 64; }
  // How often an invocation's loops run at most where the units are emulated.
  int64_t emulated_iterations(const Contraction& c) const;
};

// The images that a convolution makes.
struct MadeImages {
  int64_t count, rows, columns, channels;
};

// The tile for convolutions of which conv_halo is the quickest kernel; none for others.
std::optional<HaloTiling> quick_halo(const MadeImages& made);

// Whether the device has units for conv_halo, and such weights can be held a second time, in fragments.
bool can_hold_fragments(const NodeContext& node, const WeightView& weights);
// The element of packed weights at which those begin.
int64_t first_fragment(const NodeContext& node, const WeightView& weights);

// The tilings that the device can run; empty for contractions that are no convolution of several taps on matrix units.
std::vector<HaloTiling> halo_tilings(const LowerContext& node, const Contraction& c);

// The one of them that is the quickest kernel; none where another kernel is.
std::optional<HaloTiling> halo_tiling_of(const LowerContext& node, const Contraction& c);

}  // namespace pumice

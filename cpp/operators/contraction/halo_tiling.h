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
  int64_t tiles(const Contraction& c) const { return c.x.n * ceil_div(c.out_h, rows) * ceil_div(c.out_w, columns); }
  int64_t area(const Contraction& c) const;  // pixels that all taps read
  int64_t shared_bytes(const Contraction& c) const { return planes * (area(c) | 1) * 64; }
  // How often an invocation's loops run at most where the units are emulated.
  int64_t emulated_iterations(const Contraction& c) const;
};

// Whether a convolution's packed weights are followed by the same ones in fragments, for conv_halo. Packing and lowering decide alike.
bool has_halo_weights(const NodeContext& node, const WeightView& weights);
// The element at which those begin.
int64_t first_fragment(const NodeContext& node, const WeightView& weights);

// The tilings that the device can run; empty for contractions that are no convolution of several taps on matrix units.
std::vector<HaloTiling> halo_tilings(const LowerContext& node, const Contraction& c);

// The one for a convolution of which this is the quickest kernel; none for others.
std::optional<HaloTiling> halo_tiling_of(const LowerContext& node, const Contraction& c);

}  // namespace pumice

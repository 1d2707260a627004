// Chooses how the kernels that read a convolution's weights in fragments share out its work: conv_halo, which has in shared memory what all
// taps read, and product_quads, which reads each tap's pixels from memory.
#pragma once

#include <optional>
#include <vector>

#include "core/rounding.h"
#include "operators/contraction/contraction_terms.h"
#include "operators/contraction/contraction_tiling.h"

namespace pumice {

// The tile that a workgroup of conv_halo computes, that of each of its subgroups, the input channels that it has in shared memory, 32 for
// each plane, whether a tap's weights are read while those before are multiplied, and how many subgroups share the depth.
struct HaloTiling {
  int64_t rows, columns, channels, sub_pixels, sub_channels, planes = 1;
  bool early = false;
  int64_t split = 1;
  bool spread = false;  // the taps of a row are columns: `columns` are those of what is read

  int64_t subgroups() const { return rows * columns / sub_pixels * (channels / sub_channels) * split; }
  int64_t invocations() const { return subgroups() * 32; }
  int64_t made_columns(const Contraction& c) const { return spread ? columns - (c.taps_w - 1) * c.tap_step_w : columns; }
  int64_t tiles(const Contraction& c) const { return c.x.n * ceil_div(c.out_h, rows) * ceil_div(c.out_w, made_columns(c)); }
  int64_t area(const Contraction& c) const;          // pixels that all taps read
  int64_t shared_bytes(const Contraction& c) const;  // those, or sums that meet
  // Steps of the depth of a product, and the additions behind it.
  int64_t depth(const Contraction& c) const { return c.taps_h * (spread ? 1 : c.taps_w) * round_up(c.weights.channels_in, 32); }
  int64_t meeting(const Contraction& c) const { return spread ? c.taps_w : split; }
  // How often an invocation's loops run at most where the units are emulated.
  int64_t emulated_iterations(const Contraction& c) const;
};

// The images that a convolution makes.
struct MadeImages {
  int64_t count, rows, columns, channels_in, channels;
};

// The tile for convolutions of which conv_halo is the quickest kernel; none for others.
std::optional<HaloTiling> quick_halo(const MadeImages& made);

// The tile of product_quads for a convolution with so many taps; none where another kernel is quicker.
std::optional<QuadTiling> quick_quads(const NodeContext& node, const MadeImages& made, int64_t taps);

// Whether the device has units for either, and such weights can be held a second time, in fragments.
bool can_hold_fragments(const NodeContext& node, const WeightView& weights);
// Whether so many taps of a row fit the columns of a product.
bool can_spread(const WeightView& weights, int64_t taps_w);
constexpr int64_t kFragmentsBoundary = static_cast<int64_t>(kBindingBoundary) / 2;  // elements, where such weights begin
// The element of packed weights at which the fragments begin.
int64_t first_fragment(const NodeContext& node, const WeightView& weights);

// The tilings that the device can run; empty for contractions that are no convolution of several taps on matrix units.
std::vector<HaloTiling> halo_tilings(const LowerContext& node, const Contraction& c);

// The one of them that is the quickest kernel; none where another kernel is.
std::optional<HaloTiling> halo_tiling_of(const LowerContext& node, const Contraction& c);

// The tiles of product_quads for such a convolution, and the one of them that is the quickest kernel.
std::vector<QuadTiling> quad_convolutions(const LowerContext& node, const Contraction& c, int64_t pixels);
std::optional<QuadTiling> quad_convolution_of(const LowerContext& node, const Contraction& c);

}  // namespace pumice

// Chooses tiles for the convolution kernels with weights in fragment order: conv_halo, which keeps the patch with its halo in shared
// memory, and gemm_mma, which loads each tap's pixels from memory.
#pragma once

#include <optional>
#include <vector>

#include "core/rounding.h"
#include "operators/conv_gemm/conv_gemm_params.h"
#include "operators/conv_gemm/conv_gemm_tiling.h"

namespace pumice {

// Tile of conv_halo: workgroup tile, subgroup tile, planes of 32 input channels in shared memory, prefetch of the next tap's weights, and
// split-K over subgroups.
struct HaloTiling {
  int64_t rows, columns, channels, sub_pixels, sub_channels, planes = 1;
  bool early = false;
  int64_t split = 1;
  bool spread = false;  // the x taps are folded into N; `columns` counts input pixels

  int64_t subgroups() const { return rows * columns / sub_pixels * (channels / sub_channels) * split; }
  int64_t invocations() const { return subgroups() * 32; }
  int64_t made_columns(const Contraction& c) const { return spread ? columns - (c.taps_w - 1) * c.tap_step_w : columns; }
  int64_t tiles(const Contraction& c) const { return c.x.n * ceil_div(c.out_h, rows) * ceil_div(c.out_w, made_columns(c)); }
  int64_t area(const Contraction& c) const;          // number of pixels that all taps of a tile read
  int64_t shared_bytes(const Contraction& c) const;  // bytes for the patch, or for the reduction of partial sums
  // depth(): K. meeting(): number of partial sums that the final reduction adds.
  int64_t depth(const Contraction& c) const { return c.taps_h * (spread ? 1 : c.taps_w) * round_up(c.weights.channels_in, 32); }
  int64_t meeting(const Contraction& c) const { return spread ? c.taps_w : split; }
  // Maximum number of loop iterations per invocation with emulated fragments.
  int64_t emulated_iterations(const Contraction& c) const;
};

// Output size of a convolution.
struct MadeImages {
  int64_t count, rows, columns, channels_in, channels;
};

// Returns the tile for a convolution that conv_halo computes fastest; nullopt for others.
std::optional<HaloTiling> quick_halo(const MadeImages& made);

// Returns the tile of gemm_mma for a convolution with this many taps; nullopt if another kernel is faster.
std::optional<QuadTiling> quick_quads(const NodeContext& node, const MadeImages& made, int64_t taps);

// Whether the device has fragments and the weights are small enough for a second copy in fragment order.
bool can_hold_fragments(const NodeContext& node, const WeightView& weights);
// Whether the x taps can be folded into N.
bool can_spread(const WeightView& weights, int64_t taps_w);
constexpr int64_t kFragmentsBoundary = static_cast<int64_t>(kBindingBoundary) / 2;  // alignment of such weights, in elements
// Offset of the fragments in the packed weights.
int64_t first_fragment(const NodeContext& node, const WeightView& weights);

// Returns the tiles that the device supports; empty unless the contraction is a convolution with several taps on cooperative matrices.
std::vector<HaloTiling> halo_tilings(const LowerContext& node, const Contraction& c);

// Returns the tile to use; nullopt if another kernel is faster.
std::optional<HaloTiling> halo_tiling_of(const LowerContext& node, const Contraction& c);

// Return the tiles of gemm_mma for this convolution, and the one to use if it is the fastest kernel.
std::vector<QuadTiling> quad_convolutions(const LowerContext& node, const Contraction& c, int64_t pixels);
std::optional<QuadTiling> quad_convolution_of(const LowerContext& node, const Contraction& c);

}  // namespace pumice

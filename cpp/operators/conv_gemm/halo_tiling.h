// Chooses tiles for the convolution kernels with weights in fragment order: conv_halo, which keeps the patch with its halo in shared
// memory, and gemm_mma, which loads each tap's pixels from memory.
#pragma once

#include <optional>
#include <vector>

#include "core/rounding.h"
#include "operators/conv_gemm/conv_gemm_params.h"
#include "operators/conv_gemm/conv_gemm_tiling.h"

namespace pumice {

// Tile of conv_halo: the workgroup tile, the subgroup tile, the number of planes of 32 input channels in shared memory, whether the weights
// of the next tap are prefetched, and split-K over subgroups.
struct HaloTiling {
  int64_t rows, columns, channels, sub_pixels, sub_channels, planes = 1;
  bool prefetch = false;
  int64_t split = 1;
  bool folded_taps = false;  // the horizontal taps are folded into N, and `columns` counts input pixels

  int64_t subgroups() const { return rows * columns / sub_pixels * (channels / sub_channels) * split; }
  int64_t invocations() const { return subgroups() * 32; }
  int64_t output_columns(const ConvGemmParams& c) const { return folded_taps ? columns - (c.taps_w - 1) * c.tap_step_w : columns; }
  int64_t count_tiles(const ConvGemmParams& c) const { return c.x.n * ceil_div(c.out_h, rows) * ceil_div(c.out_w, output_columns(c)); }
  int64_t count_patch_pixels(const ConvGemmParams& c) const;  // number of pixels that all taps of a tile read
  int64_t shared_bytes(const ConvGemmParams& c) const;        // bytes for the patch, or for the reduction of partial sums
  // k_size(): K, with the input channels padded to whole planes. count_partial_sums(): number of partial sums that the final reduction
  // adds.
  int64_t k_size(const ConvGemmParams& c) const { return c.taps_h * (folded_taps ? 1 : c.taps_w) * round_up(c.weights.channels_in, 32); }
  int64_t count_partial_sums(const ConvGemmParams& c) const { return folded_taps ? c.taps_w : split; }
  // Returns the maximum number of loop iterations per invocation if cooperative matrices are emulated.
  int64_t count_emulated_iterations(const ConvGemmParams& c) const;
};

// Output size of a convolution.
struct ConvOutputSize {
  int64_t count, rows, columns, channels_in, channels;
};

// Returns the tile for a convolution that conv_halo computes fastest; nullopt for all others.
std::optional<HaloTiling> choose_fastest_halo_tiling(const ConvOutputSize& output);

// Returns the tile of gemm_mma for a convolution with this many taps; nullopt if another kernel is faster.
std::optional<MmaTiling> choose_fastest_mma_tiling(const NodeContext& node, const ConvOutputSize& output, int64_t taps);

// Whether the device has cooperative matrices and the weights are small enough for a second copy in fragment order.
bool fits_fragment_copy(const NodeContext& node, const WeightView& weights);
// Whether the horizontal taps can be folded into N (the columns of the product).
bool can_fold_taps(const WeightView& weights, int64_t taps_w);
constexpr int64_t kFragmentAlignment =
    static_cast<int64_t>(kBindingBoundary) / 2;  // alignment of the copies in fragment order, in elements
// Returns the offset of the copy in fragment order within the packed weights.
int64_t get_fragment_copy_offset(const NodeContext& node, const WeightView& weights);

// Returns the tiles of conv_halo that the device supports. Empty unless this is a convolution with several taps on cooperative matrices.
std::vector<HaloTiling> list_halo_tilings(const LowerContext& node, const ConvGemmParams& c);

// Returns the tile of conv_halo to use; nullopt if another kernel is faster.
std::optional<HaloTiling> select_halo_tiling(const LowerContext& node, const ConvGemmParams& c);

// Return the tiles of gemm_mma for this convolution, and the tile to use if gemm_mma is the fastest kernel.
std::vector<MmaTiling> list_conv_mma_tilings(const LowerContext& node, const ConvGemmParams& c, int64_t pixels);
std::optional<MmaTiling> select_conv_mma_tiling(const LowerContext& node, const ConvGemmParams& c);

}  // namespace pumice

// Chooses tiles for conv_patch, a convolution with few channels that keeps the input patch of all taps in shared memory.
#pragma once

#include <optional>
#include <vector>

#include "core/rounding.h"
#include "operators/conv_gemm/conv_gemm_params.h"

namespace pumice {

// Tile of conv_patch: the workgroup tile, the number of adjacent pixels per invocation, and the number of input channels in shared memory,
// which is `chunk` for each of `split` thread groups.
struct PatchTiling {
  int64_t rows, columns, channels, pixels, split = 1, chunk = 1;

  int64_t invocations() const { return rows * columns / pixels * (channels / 4) * split; }
  int64_t count_tiles(const ConvGemmParams& c) const { return c.x.n * ceil_div(c.out_h, rows) * ceil_div(c.out_w, columns); }
  int64_t patch_elements(const ConvGemmParams& c) const;  // elements per channel in shared memory
  int64_t shared_bytes(const ConvGemmParams& c) const;    // bytes for the patch, or for staged sums
  int64_t count_channel_rounds(const ConvGemmParams& c) const { return ceil_div(c.weights.channels_in, split * chunk); }
  int64_t count_tile_loads(const ConvGemmParams& c) const;  // global loads of one invocation per round, in vec4s if channels are contiguous
  // Returns the maximum number of loop iterations per invocation.
  int64_t iterations(const ConvGemmParams& c) const {
    const int64_t row = 2 + c.taps_w * (1 + pixels) + patch_elements(c) / (rows * columns);
    return count_channel_rounds(c) * (2 + 6 * count_tile_loads(c) + chunk * (1 + c.taps_h * row)) + pixels * (4 + split) +
           count_pool_iterations(c);
  }
  int64_t count_pool_iterations(const ConvGemmParams& c) const {
    if (!has_pool(c)) return 0;
    const int64_t windows = rows * columns * (channels / 4) / (c.pool.rows * c.pool.columns);
    return ceil_div(windows, invocations()) * (5 + c.pool.rows * (1 + c.pool.columns));
  }
};

// Returns the tiles that the device supports; with fused pooling, they consist of whole windows. Empty unless this is a convolution with
// few channels and several taps.
std::vector<PatchTiling> list_patch_tilings(const NodeContext& node, const ConvGemmParams& c);

// Returns the tile if conv_patch is the fastest kernel without cooperative matrices. With fused pooling, returns the best tile even if
// separate kernels are faster.
std::optional<PatchTiling> select_patch_tiling(const NodeContext& node, const ConvGemmParams& c);

}  // namespace pumice

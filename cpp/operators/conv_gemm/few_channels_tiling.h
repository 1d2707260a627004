// Chooses tiles for conv_few_channels, a convolution with few input channels on cooperative matrices whose K covers all taps.
#pragma once

#include <optional>
#include <vector>

#include "core/rounding.h"
#include "operators/conv_gemm/conv_gemm_params.h"

namespace pumice {

// Tile of conv_few_channels: the pixels and output channels of a workgroup, and the output channels of a subgroup.
struct FewChannelsTiling {
  int64_t rows, columns, channels, sub_channels;

  static constexpr int64_t kPixelGroups = 4, kLanes = 32;  // subgroups that split the pixels; invocations per subgroup

  int64_t invocations() const { return kLanes * kPixelGroups * (channels / sub_channels); }
  int64_t count_tiles(const ConvGemmParams& c) const { return c.x.n * ceil_div(c.out_h, rows) * ceil_div(c.out_w, columns); }
  // Returns the number of persistent workgroups along the first grid axis. The tiles are distributed evenly over them.
  int64_t count_workgroups(const NodeContext& node, const ConvGemmParams& c) const;
  int64_t get_patch_row_pitch(const ConvGemmParams& c) const;  // row pitch of the patch, in elements
  int64_t patch_elements(const ConvGemmParams& c) const;       // elements of the patch
  int64_t count_tile_loads(const ConvGemmParams& c) const;     // number of global loads per invocation and tile
};

// Returns K (taps times input channels), rounded up to whole cooperative matrices.
int64_t compute_padded_few_channels_k(const ConvGemmParams& c);

// Returns the tiles that the device supports; empty unless this is an fp16 convolution with few channels and several taps.
std::vector<FewChannelsTiling> list_few_channels_tilings(const NodeContext& node, const ConvGemmParams& c);

// Returns the tile for a convolution that conv_few_channels computes fastest; nullopt for all others.
std::optional<FewChannelsTiling> select_few_channels_tiling(const NodeContext& node, const ConvGemmParams& c);

// Whether an invocation stores its results as fp16 vec8s.
bool stores_vec8(const FewChannelsTiling& tiling, const ConvGemmParams& c);

}  // namespace pumice

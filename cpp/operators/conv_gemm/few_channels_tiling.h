// Chooses tiles for conv_few_channels, a convolution with few input channels on cooperative matrices, with K running over all taps.
#pragma once

#include <optional>
#include <vector>

#include "core/rounding.h"
#include "operators/conv_gemm/conv_gemm_params.h"

namespace pumice {

// Tile of conv_few_channels: pixels and output channels of a workgroup, and channels of a subgroup.
struct TapsTiling {
  int64_t rows, columns, channels, sub_channels;

  static constexpr int64_t kShares = 4, kLanes = 32;  // subgroups that split the pixels; invocations per subgroup

  int64_t invocations() const { return kLanes * kShares * (channels / sub_channels); }
  int64_t tiles(const Contraction& c) const { return c.x.n * ceil_div(c.out_h, rows) * ceil_div(c.out_w, columns); }
  // Number of persistent workgroups on the first grid axis; their tile counts differ by at most one.
  int64_t workgroups(const NodeContext& node, const Contraction& c) const;
  int64_t pitch(const Contraction& c) const;     // row pitch of the patch, in elements
  int64_t elements(const Contraction& c) const;  // elements of the patch
  int64_t loads(const Contraction& c) const;     // global loads of one invocation per tile
};

// K of such a convolution, rounded up to whole matrix steps.
int64_t taps_depth(const Contraction& c);

// Returns the tiles that the device supports; empty unless the contraction is an fp16 convolution with few channels and several taps.
std::vector<TapsTiling> taps_tilings(const NodeContext& node, const Contraction& c);

// Returns the tile for a convolution where this kernel is fastest.
std::optional<TapsTiling> taps_tiling_of(const NodeContext& node, const Contraction& c);

// Whether an invocation stores its sums as fp16 vec8s.
bool stores_eights(const TapsTiling& tiling, const Contraction& c);

}  // namespace pumice

#include "operators/conv_gemm/few_channels_tiling.h"

#include <algorithm>

#include "operators/conv_gemm/conv_gemm_tiling.h"

namespace pumice {
namespace {

// Whether the kernel supports the convolution: fp16, few channels with several taps, and forward windows.
bool takes(const NodeContext& node, const Contraction& c) {
  constexpr int64_t kMostDepth = 256;
  if (!node.has_fragments() || node.prefers_lanes() || c.x_dtype != DType::float16) return false;
  if (c.matrix || c.integers || pools(c) || c.order != WeightOrder::blocks || c.weights.groups != 1) return false;
  if (c.weights.channels_in == 0 || c.x.h * c.x.w == 0 || c.taps_h * c.taps_w < 2 || taps_depth(c) > kMostDepth) return false;
  if (c.w_first % 8 != 0) return false;
  return has_near_taps(c);
}

// Whether the tile fits into shared memory, and its weights into registers.
bool fits(const NodeContext& node, const Contraction& c, const TapsTiling& tiling) {
  constexpr int64_t kSharedBytes = 24576, kMostLoads = 32, kMostInvocations = 512, kMostWeights = 8 * 4;
  constexpr int64_t kPlacesBytes = 512;  // for the patch offsets of all K steps
  const auto limit = static_cast<int64_t>(node.context->limit("maxComputeSharedMemorySize"));
  const auto most_groups = static_cast<int64_t>(std::min<uint64_t>(node.context->limit("maxComputeWorkGroupCount_0"), INT32_MAX));
  const int64_t bytes = 2 * tiling.elements(c) + kPlacesBytes;
  const int64_t shared = bytes * (node.emulates_fragments() ? 2 : 1) + node.emulated_bytes(tiling.invocations());
  return taps_depth(c) / 16 * (tiling.sub_channels / 16) <= kMostWeights &&
         tiling.invocations() <= std::min(kMostInvocations, node.most_invocations()) && bytes <= kSharedBytes && shared <= limit &&
         tiling.loads(c) <= kMostLoads && tiling.tiles(c) <= INT32_MAX && tiling.workgroups(node, c) <= most_groups;
}

// Tile of this shape with `sub_channels` per subgroup and as many subgroups as the channels need, up to three.
TapsTiling with_channels(TapsTiling shape, const Contraction& c, int64_t sub_channels) {
  constexpr int64_t kMostAcross = 3;
  shape.sub_channels = sub_channels;
  shape.channels = sub_channels * std::min(ceil_div(c.weights.channels_out, sub_channels), kMostAcross);
  return shape;
}

constexpr TapsTiling kSmall{4, 16, 0, 0}, kMiddle{4, 32, 0, 0}, kLarge{8, 32, 0, 0};
constexpr int64_t kSubChannels[] = {64, 32, 16};

}  // namespace

int64_t taps_depth(const Contraction& c) {
  return round_up(c.taps_h * c.taps_w * c.weights.channels_in, 16);
}

int64_t TapsTiling::workgroups(const NodeContext& node, const Contraction& c) const {
  constexpr int64_t kOfMultiprocessor = 8;  // workgroups per multiprocessor; more would not amortise loading the weights
  const int64_t rounds = ceil_div(tiles(c), node.multiprocessors() * kOfMultiprocessor);
  return ceil_div(tiles(c), std::max<int64_t>(rounds, 1));
}

int64_t TapsTiling::loads(const Contraction& c) const {
  const int64_t high = span_of_taps(rows, c.in_step_h, c.taps_h, c.tap_step_h),
                wide = span_of_taps(columns, c.in_step_w, c.taps_w, c.tap_step_w);
  return ceil_div(c.weights.channels_in * high * wide, invocations());
}

int64_t TapsTiling::pitch(const Contraction& c) const {
  // Four consecutive rows start a quarter of the shared memory banks apart.
  const int64_t read = span_of_taps(columns, c.in_step_w, c.taps_w, c.tap_step_w);
  return round_up(std::max<int64_t>(read - 16, 0), 32) + 16;
}

int64_t TapsTiling::elements(const Contraction& c) const {
  return c.weights.channels_in * span_of_taps(rows, c.in_step_h, c.taps_h, c.tap_step_h) * pitch(c);
}

bool stores_eights(const TapsTiling& tiling, const Contraction& c) {
  return tiling.sub_channels > 16 && c.y_dtype == DType::float16 && c.y_first % 8 == 0 &&
         has_vector_channels(c.y, c.weights.channels_out, c.y_stride_group, 8);
}

std::vector<TapsTiling> taps_tilings(const NodeContext& node, const Contraction& c) {
  std::vector<TapsTiling> found;
  if (!takes(node, c)) return found;
  const int64_t out = c.weights.channels_out;
  for (const TapsTiling& shape : {kLarge, kMiddle, kSmall}) {
    bool has_wider = false;
    for (const int64_t channels : kSubChannels) {
      const TapsTiling one = with_channels(shape, c, channels);
      if (channels >= 2 * std::max<int64_t>(out, 16) || (has_wider && one.channels < out) || !fits(node, c, one)) continue;
      has_wider = true;
      found.push_back(one);
    }
  }
  return found;
}

std::optional<TapsTiling> taps_tiling_of(const NodeContext& node, const Contraction& c) {
  constexpr int64_t kFewestPixels = 4096, kFewestChannels = 16, kTilesOfMultiprocessor = 2;
  const int64_t pixels = c.x.n * c.out_h * c.out_w;
  if (!takes(node, c) || pixels < kFewestPixels || c.weights.channels_out < kFewestChannels) return {};
  std::optional<TapsTiling> best;
  for (const TapsTiling& one : taps_tilings(node, c)) {                // larger tiles first, then wider subgroups
    if (one.tiles(c) * one.rows * one.columns > 2 * pixels) continue;  // e.g. images of one row
    const bool is_smaller = best && one.rows * one.columns < best->rows * best->columns;
    if (!best || (is_smaller && best->tiles(c) < kTilesOfMultiprocessor * node.multiprocessors())) best = one;
  }
  return best;
}

}  // namespace pumice

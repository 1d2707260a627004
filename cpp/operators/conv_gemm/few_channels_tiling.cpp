#include "operators/conv_gemm/few_channels_tiling.h"

#include <algorithm>

#include "operators/conv_gemm/conv_gemm_tiling.h"

namespace pumice {
namespace {

// Whether conv_few_channels supports the convolution: fp16, few input channels, several taps, and positive strides and dilations.
bool supports_few_channels(const NodeContext& node, const ConvGemmParams& c) {
  constexpr int64_t kMaxK = 256;
  if (!node.has_or_emulates_mma() || node.prefers_cpu_kernels() || c.x_dtype != DType::float16) return false;
  if (c.is_gemm || c.integers || has_pool(c) || c.order != WeightOrder::blocks || c.weights.groups != 1) return false;
  if (c.weights.channels_in == 0 || c.x.h * c.x.w == 0 || c.taps_h * c.taps_w < 2 || compute_padded_few_channels_k(c) > kMaxK) return false;
  if (c.w_first % 8 != 0) return false;
  return has_small_windows(c);
}

// Whether the tile fits into shared memory, and its weights into registers.
bool fits_device(const NodeContext& node, const ConvGemmParams& c, const FewChannelsTiling& tiling) {
  constexpr int64_t kSharedBytes = 24576, kMaxLoads = 32, kMaxInvocations = 512, kMaxWeights = 8 * 4;
  constexpr int64_t kOffsetsBytes = 512;  // bytes for the patch offsets of all K steps
  const auto limit = static_cast<int64_t>(node.context->limit("maxComputeSharedMemorySize"));
  const auto max_groups = static_cast<int64_t>(std::min<uint64_t>(node.context->limit("maxComputeWorkGroupCount_0"), INT32_MAX));
  const int64_t bytes = 2 * tiling.patch_elements(c) + kOffsetsBytes;
  const int64_t shared = bytes * (node.emulates_mma() ? 2 : 1) + node.count_emulation_shared_bytes(tiling.invocations());
  return compute_padded_few_channels_k(c) / 16 * (tiling.sub_channels / 16) <= kMaxWeights &&
         tiling.invocations() <= std::min(kMaxInvocations, node.max_invocations()) && bytes <= kSharedBytes && shared <= limit &&
         tiling.count_tile_loads(c) <= kMaxLoads && tiling.count_tiles(c) <= INT32_MAX && tiling.count_workgroups(node, c) <= max_groups;
}

// Returns a tile of this shape with `sub_channels` output channels per subgroup and as many subgroups as the output channels need, up to
// three.
FewChannelsTiling set_tile_channels(FewChannelsTiling shape, const ConvGemmParams& c, int64_t sub_channels) {
  constexpr int64_t kMaxAcross = 3;
  shape.sub_channels = sub_channels;
  shape.channels = sub_channels * std::min(ceil_div(c.weights.channels_out, sub_channels), kMaxAcross);
  return shape;
}

constexpr FewChannelsTiling kSmallTile{4, 16, 0, 0}, kMediumTile{4, 32, 0, 0}, kLargeTile{8, 32, 0, 0};
constexpr int64_t kSubChannels[] = {64, 32, 16};

}  // namespace

int64_t compute_padded_few_channels_k(const ConvGemmParams& c) {
  return round_up(c.taps_h * c.taps_w * c.weights.channels_in, 16);
}

int64_t FewChannelsTiling::count_workgroups(const NodeContext& node, const ConvGemmParams& c) const {
  constexpr int64_t kGroupsPerSm = 8;  // workgroups per multiprocessor; with more, loading the weights would not pay off
  const int64_t rounds = ceil_div(count_tiles(c), node.num_multiprocessors() * kGroupsPerSm);
  return ceil_div(count_tiles(c), std::max<int64_t>(rounds, 1));
}

int64_t FewChannelsTiling::count_tile_loads(const ConvGemmParams& c) const {
  const int64_t high = compute_input_span(rows, c.in_step_h, c.taps_h, c.tap_step_h),
                wide = compute_input_span(columns, c.in_step_w, c.taps_w, c.tap_step_w);
  return ceil_div(c.weights.channels_in * high * wide, invocations());
}

int64_t FewChannelsTiling::get_patch_row_pitch(const ConvGemmParams& c) const {
  // Choose the pitch so that four consecutive rows start in different quarters of the shared memory banks.
  const int64_t read = compute_input_span(columns, c.in_step_w, c.taps_w, c.tap_step_w);
  return round_up(std::max<int64_t>(read - 16, 0), 32) + 16;
}

int64_t FewChannelsTiling::patch_elements(const ConvGemmParams& c) const {
  return c.weights.channels_in * compute_input_span(rows, c.in_step_h, c.taps_h, c.tap_step_h) * get_patch_row_pitch(c);
}

bool stores_vec8(const FewChannelsTiling& tiling, const ConvGemmParams& c) {
  return tiling.sub_channels > 16 && c.y_dtype == DType::float16 && c.y_first % 8 == 0 &&
         has_vector_channels(c.y, c.weights.channels_out, c.y_stride_group, 8);
}

std::vector<FewChannelsTiling> list_few_channels_tilings(const NodeContext& node, const ConvGemmParams& c) {
  std::vector<FewChannelsTiling> result;
  if (!supports_few_channels(node, c)) return result;
  const int64_t out = c.weights.channels_out;
  for (const FewChannelsTiling& shape : {kLargeTile, kMediumTile, kSmallTile}) {
    bool has_wider = false;
    for (const int64_t channels : kSubChannels) {
      const FewChannelsTiling candidate = set_tile_channels(shape, c, channels);
      if (channels >= 2 * std::max<int64_t>(out, 16) || (has_wider && candidate.channels < out) || !fits_device(node, c, candidate))
        continue;
      has_wider = true;
      result.push_back(candidate);
    }
  }
  return result;
}

std::optional<FewChannelsTiling> select_few_channels_tiling(const NodeContext& node, const ConvGemmParams& c) {
  constexpr int64_t kMinPixels = 4096, kMinChannels = 16, kMinTilesPerSm = 2;
  const int64_t pixels = c.x.n * c.out_h * c.out_w;
  if (!supports_few_channels(node, c) || pixels < kMinPixels || c.weights.channels_out < kMinChannels) return {};
  std::optional<FewChannelsTiling> best;
  for (const FewChannelsTiling& candidate : list_few_channels_tilings(node, c)) {  // larger tiles first, then wider subgroups
    if (candidate.count_tiles(c) * candidate.rows * candidate.columns > 2 * pixels)
      continue;  // tiles would be less than half full, as for images of one row
    const bool is_smaller = best && candidate.rows * candidate.columns < best->rows * best->columns;
    if (!best || (is_smaller && best->count_tiles(c) < kMinTilesPerSm * node.num_multiprocessors())) best = candidate;
  }
  return best;
}

}  // namespace pumice

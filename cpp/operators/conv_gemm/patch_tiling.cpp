#include "operators/conv_gemm/patch_tiling.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "operators/conv_gemm/conv_gemm_tiling.h"

namespace pumice {
namespace {

constexpr int64_t kMinInvocations = 32;  // minimum per workgroup

// Whether conv_patch supports the convolution: few channels, several taps, and an input row that fits into registers.
bool supports_patch(const NodeContext& node, const ConvGemmParams& c, int64_t pixels) {
  constexpr int64_t kMaxChannels = 512,
                    kMaxSpan = 32;  // maximum input channels times output channels; maximum row elements in registers
  const bool is_candidate = !c.is_gemm && !c.integers && c.order == WeightOrder::blocks && c.weights.channels_in > 0;
  if (!is_candidate || node.prefers_cpu_kernels() || c.taps_h * c.taps_w < 2 || c.x.h * c.x.w == 0) return false;
  if (c.weights.channels_in * c.weights.channels_out > kMaxChannels) return false;
  return has_small_windows(c) && compute_input_span(pixels, c.in_step_w, c.taps_w, c.tap_step_w) <= kMaxSpan;
}

// Returns the tile with as many channels as fit into shared memory. Returns nullopt if less than one channel per split fits.
std::optional<PatchTiling> fit_channels(const NodeContext& node, const ConvGemmParams& c, PatchTiling tiling) {
  constexpr int64_t kSharedBytes = 24576, kMaxLoads = 16, kMaxInvocations = 512;
  const auto limit = static_cast<int64_t>(node.context->limit("maxComputeSharedMemorySize"));
  const auto most_tiles = static_cast<int64_t>(std::min<uint64_t>(node.context->limit("maxComputeWorkGroupCount_0"), INT32_MAX));
  const int64_t invocations = tiling.invocations();
  if (!supports_patch(node, c, tiling.pixels) || tiling.split > c.weights.channels_in || tiling.count_tiles(c) > most_tiles) return {};
  if (invocations < kMinInvocations || invocations > std::min(kMaxInvocations, node.max_invocations())) return {};
  const auto fits = [&] { return tiling.shared_bytes(c) <= std::min(kSharedBytes, limit) && tiling.count_tile_loads(c) <= kMaxLoads; };
  for (tiling.chunk = ceil_div(c.weights.channels_in, tiling.split); !fits(); tiling.chunk = ceil_div(tiling.chunk, 2))
    if (tiling.chunk == 1) return {};
  if (tiling.iterations(c) > node.loop_limit().value_or(INT64_MAX)) return {};
  return tiling;
}

// Rounds the tile size down to a multiple of the pooling window, but to at least one window.
PatchTiling round_to_windows(PatchTiling tiling, const PoolWindow& pool) {
  const auto whole = [](int64_t size, int64_t unit) { return std::max<int64_t>(size / unit, 1) * unit; };
  tiling.rows = whole(tiling.rows, pool.rows);
  tiling.columns = whole(tiling.columns, std::lcm(tiling.pixels, pool.columns));
  return tiling;
}

// Returns the number of output channels per tile: all of them, but at most `max_channels`.
int64_t limit_tile_channels(const ConvGemmParams& c, int64_t max_channels) {
  return std::min(round_up(c.weights.channels_out, 4), max_channels);
}

}  // namespace

int64_t PatchTiling::patch_elements(const ConvGemmParams& c) const {
  const int64_t read = round_up(compute_input_span(pixels, c.in_step_w, c.taps_w, c.tap_step_w), 4);
  return compute_input_span(rows, c.in_step_h, c.taps_h, c.tap_step_h) * ((columns / pixels - 1) * pixels * c.in_step_w + read);
}

int64_t PatchTiling::count_tile_loads(const ConvGemmParams& c) const {
  const bool has_fours = split * chunk % 4 == 0 && has_vector_channels(c.x, c.weights.channels_in, c.x_stride_group, 4);
  return ceil_div(split * chunk * patch_elements(c) / (has_fours ? 4 : 1), invocations());
}

int64_t PatchTiling::shared_bytes(const ConvGemmParams& c) const {
  return std::max(split * chunk * patch_elements(c) * 4, split > 1 || has_pool(c) ? invocations() * pixels * 16 : 0);
}

std::vector<PatchTiling> list_patch_tilings(const NodeContext& node, const ConvGemmParams& c) {
  constexpr PatchTiling kShapes[] = {{4, 16, 0, 4}, {8, 16, 0, 4}, {8, 32, 0, 4}, {8, 32, 0, 8}, {16, 32, 0, 8}};
  std::vector<PatchTiling> result;
  const std::set<int64_t> channels{limit_tile_channels(c, 8), limit_tile_channels(c, 16),
                                   limit_tile_channels(c, 32)};  // for 9 channels, also tries one tile of 12
  for (PatchTiling candidate : kShapes)
    for (const int64_t tile_channels : channels)
      for (candidate.channels = tile_channels, candidate.split = 1; candidate.split <= 8; candidate.split *= 2)
        if (const auto fitting = fit_channels(node, c, round_to_windows(candidate, c.pool))) result.push_back(*fitting);
  return result;
}

namespace {

// Returns the tile shape for a convolution where this kernel is fastest.
std::optional<PatchTiling> choose_fastest_patch_tiling(const NodeContext& node, const ConvGemmParams& c) {
  constexpr int64_t kManyTaps = 25, kSomeTaps = 9, kFewIn = 8, kFewOut = 8, kNarrowOut = 12, kWideOut = 64, kManyPixels = 1 << 14;
  const int64_t taps = c.taps_h * c.taps_w, pixels = c.x.n * c.out_h * c.out_w, out = c.weights.channels_out;
  const bool is_large = pixels >= kManyPixels;
  // With so few output channels, tiles of 16 channels would be at least a quarter empty.
  const bool is_narrow = taps >= kSomeTaps && is_large && out <= kNarrowOut;
  if (!is_narrow && (taps < kManyTaps || (c.weights.channels_in > kFewIn && out > kFewOut))) return {};
  if (is_16bit_float(node.float_dtype) && out >= kWideOut)
    return {};  // conv_tiled loads these weights equally fast, and loads fewer pixels
  PatchTiling tiling{8, 16, limit_tile_channels(c, 16), 4};
  if (is_narrow)  // nine or more output channels use one tile; with fewer, the input channels are split more
    tiling.channels = limit_tile_channels(c, out > 8 ? kNarrowOut : 8),
    tiling.split = std::min<int64_t>(out > 8 ? 2 : 4, c.weights.channels_in);
  else if (!is_16bit_float(node.float_dtype) && (is_large || out > kFewOut))
    tiling.rows = 4, tiling.channels = limit_tile_channels(c, 8);
  return tiling;
}

// Returns the tile for a convolution with fused pooling. It consists of whole windows and has at least one subgroup of invocations.
PatchTiling choose_pooled_patch_tiling(const NodeContext& node, const ConvGemmParams& c) {
  const PatchTiling default_shape{4, 16, limit_tile_channels(c, 8), 4};
  PatchTiling tiling = round_to_windows(choose_fastest_patch_tiling(node, c).value_or(default_shape), c.pool);
  while (tiling.invocations() < kMinInvocations && tiling.split * 2 <= c.weights.channels_in) tiling.split *= 2;
  while (tiling.invocations() < kMinInvocations) tiling.rows += c.pool.rows;
  return tiling;
}

}  // namespace

std::optional<PatchTiling> select_patch_tiling(const NodeContext& node, const ConvGemmParams& c) {
  constexpr int64_t kBusyInvocations = 32768, kMaxInvocations = 256;
  const int64_t pixels = c.x.n * c.out_h * c.out_w;
  const auto shape = has_pool(c) ? std::optional(choose_pooled_patch_tiling(node, c)) : choose_fastest_patch_tiling(node, c);
  if (!shape) return {};
  PatchTiling tiling = *shape;
  if (!has_pool(c) && tiling.count_tiles(c) * tiling.rows * tiling.columns > 2 * pixels)
    return {};  // tiles would be less than half full, as for images of one row
  const int64_t groups = ceil_div(c.weights.channels_out, tiling.channels) * c.weights.groups;
  std::optional<PatchTiling> result = fit_channels(node, c, tiling);
  while (result && tiling.count_tiles(c) * groups * tiling.invocations() < kBusyInvocations &&
         tiling.invocations() * 2 <= kMaxInvocations) {
    tiling.split *= 2;
    const auto wider = fit_channels(node, c, tiling);
    if (!wider) break;
    result = wider;
  }
  return result;
}

}  // namespace pumice

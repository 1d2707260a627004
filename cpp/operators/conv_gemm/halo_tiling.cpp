#include "operators/conv_gemm/halo_tiling.h"

#include <algorithm>

#include "operators/conv_gemm/conv_gemm_tiling.h"
#include "operators/conv_gemm/weight_packing.h"

namespace pumice {
namespace {

constexpr int64_t kPlaneChannels = 32;     // input channels per plane
constexpr int64_t kMaxFoldedColumns = 32;  // maximum number of horizontal taps times output channels
constexpr int64_t kFewChannels = 16;       // number of output channels of one cooperative matrix

// Whether kernels with weights in fragment order support the convolution: one group, several taps, and aligned fp16 vec8s of channels.
bool supports_mma_conv(const LowerContext& node, const ConvGemmParams& c) {
  constexpr int64_t kEight = 8;
  const bool is_candidate = !c.is_gemm && !c.integers && !has_pool(c) && c.order == WeightOrder::blocks && c.fragments > 0;
  if (!is_candidate || !node.has_or_emulates_mma() || c.weights.groups != 1 || c.taps_h * c.taps_w < 2 || c.x.h * c.x.w == 0) return false;
  const bool is_aligned = node.input_misalignment(0) == 0 && c.x_first % kEight == 0;
  return has_small_windows(c) && is_aligned && c.x_dtype == DType::float16 &&
         has_vector_channels(c.x, c.weights.channels_in, c.x_stride_group, kEight);
}

bool fits_device(const LowerContext& node, const ConvGemmParams& c, const HaloTiling& tiling) {
  const auto limit = [&](const char* name) { return static_cast<int64_t>(std::min<uint64_t>(node.context->limit(name), INT32_MAX)); };
  return tiling.shared_bytes(c) + node.count_emulation_shared_bytes(tiling.invocations()) <= limit("maxComputeSharedMemorySize") &&
         tiling.invocations() <= node.max_invocations() && tiling.count_tiles(c) <= limit("maxComputeWorkGroupCount_0") &&
         ceil_div(c.weights.channels_out, tiling.channels) <= limit("maxComputeWorkGroupCount_1");
}

// Whether the channels fill at least half a tile.
bool fills_channels(const ConvGemmParams& c, const HaloTiling& tiling) {
  const int64_t out = c.weights.channels_out;
  const bool is_narrow = out <= kFewChannels;
  return is_narrow == (tiling.channels == kFewChannels) && (is_narrow || tiling.channels <= round_up(out, 32));
}

}  // namespace

int64_t HaloTiling::count_patch_pixels(const ConvGemmParams& c) const {
  return compute_input_span(rows, c.in_step_h, c.taps_h, c.tap_step_h) *
         (folded_taps ? columns : compute_input_span(columns, c.in_step_w, c.taps_w, c.tap_step_w));
}

int64_t HaloTiling::shared_bytes(const ConvGemmParams& c) const {
  const int64_t pitch = folded_taps ? channels + 1 : split > 1 ? channels + 4 : 0;
  return std::max(planes * (count_patch_pixels(c) | 1) * 64, split * rows * columns * pitch * 4);
}

int64_t HaloTiling::count_emulated_iterations(const ConvGemmParams& c) const {
  constexpr int64_t kLine = 32;  // loop iterations to load or store one emulated matrix
  const int64_t matrices = sub_pixels / 16 + sub_channels / 16, products = sub_pixels / 16 * (sub_channels / 16);
  const int64_t fetching = ceil_div(c.weights.channels_in, kPlaneChannels) * (4 + 3 * ceil_div(count_patch_pixels(c) * 4, invocations()));
  const int64_t results = folded_taps ? ceil_div(rows * columns, invocations()) * (c.weights.channels_out + 4) * (c.taps_w + 2) : 0;
  return k_size(c) / kPlaneChannels / split * (2 * products * kEmulatedMmaIterations + matrices * kLine) + fetching + products * kLine +
         results;
}

std::optional<HaloTiling> choose_fastest_halo_tiling(const ConvOutputSize& output) {
  constexpr int64_t kBusyTiles = 100, kMinK = 16;
  constexpr HaloTiling kNarrowTile{8, 16, 16, 32, 16}, kMiddle{8, 16, 32, 32, 32}, kWide{8, 16, 64, 64, 32};
  const HaloTiling& tiling = output.channels <= kFewChannels ? kNarrowTile : output.channels <= 32 ? kMiddle : kWide;
  const int64_t tiles = output.count * ceil_div(output.rows, tiling.rows) * ceil_div(output.columns, tiling.columns);
  if (output.channels_in < kMinK || tiles * ceil_div(output.channels, tiling.channels) < kBusyTiles) return {};
  const bool is_filled =
      output.count * output.rows * output.columns * 2 >= tiles * tiling.rows * tiling.columns;  // tiles are on average at least half full
  return is_filled ? std::optional(tiling) : std::nullopt;
}

std::optional<MmaTiling> choose_fastest_mma_tiling(const NodeContext& node, const ConvOutputSize& output, int64_t taps) {
  constexpr int64_t kMinK = 192;
  if (taps * output.channels_in < kMinK || choose_fastest_halo_tiling(output)) return {};
  return select_mma_tiling(node, output.count * output.rows * output.columns, output.channels,
                           taps * round_up(output.channels_in, kPlaneChannels), false);
}

bool fits_fragment_copy(const NodeContext& node, const WeightView& weights) {
  constexpr int64_t kMaxBytes = 1 << 23;  // maximum size of the second copy of the weights
  return node.has_or_emulates_mma() && weights.groups == 1 && weights.taps > 1 && weights.channels_in % 8 == 0 && weights.channels_in > 0 &&
         weights.channels_out > 0 && count_fragment_elements(weights) * 2 <= std::min(kMaxBytes, max_binding_bytes(*node.context));
}

bool can_fold_taps(const WeightView& weights, int64_t taps_w) {
  return taps_w > 1 && weights.channels_out * taps_w <= kMaxFoldedColumns;
}

int64_t get_fragment_copy_offset(const NodeContext& node, const WeightView& weights) {
  return round_up(count_packed_elements_per_group(node, weights), kFragmentAlignment);
}

namespace {

// Returns tiles with the horizontal taps folded into N. Empty if there are too many taps, or if a stride is not 1.
std::vector<HaloTiling> list_folded_tap_tilings(const ConvGemmParams& c) {
  std::vector<HaloTiling> result;
  if (c.folded_taps == 0 || c.in_step_h != 1 || c.in_step_w != 1) return result;
  const int64_t columns = round_up(c.weights.channels_out * c.taps_w, 16);
  for (HaloTiling candidate : {HaloTiling{4, 32, columns, 32, columns}, {8, 32, columns, 64, columns}, {2, 32, columns, 16, columns}}) {
    candidate.folded_taps = true;
    if (candidate.output_columns(c) >= candidate.columns / 2) result.push_back(candidate);
  }
  return result;
}

// Returns tiles for small images, with split-K over subgroups and as many planes as fit. Subgroups split K in units of one kernel row of
// one plane, so there must be at least as many units as subgroups. If cooperative matrices are emulated, all invocations multiply together,
// so all subgroups need the same number of units.
std::vector<HaloTiling> list_split_k_tilings(const LowerContext& node, const ConvGemmParams& c) {
  constexpr HaloTiling kShapes[] = {{8, 8, 16, 64, 16}, {8, 8, 32, 64, 32}, {8, 8, 32, 32, 32}};
  const int64_t all_planes = ceil_div(c.weights.channels_in, kPlaneChannels);
  std::vector<HaloTiling> result;
  for (HaloTiling candidate : kShapes)
    for (candidate.split = 2, candidate.prefetch = true; candidate.split <= 4; candidate.split *= 2) {
      const auto splits_evenly = [&](int64_t planes) { return !node.emulates_mma() || planes * c.taps_h % candidate.split == 0; };
      const auto fits = [&] {
        return splits_evenly(candidate.planes) && splits_evenly(all_planes % candidate.planes) && fits_device(node, c, candidate);
      };
      for (candidate.planes = std::min<int64_t>(all_planes, 4); candidate.planes > 0 && !fits();) --candidate.planes;
      if (candidate.planes * c.taps_h >= candidate.split && candidate.channels <= round_up(c.weights.channels_out, kFewChannels))
        result.push_back(candidate);
    }
  return result;
}

std::vector<HaloTiling> list_unsplit_tilings(const ConvGemmParams& c) {
  constexpr HaloTiling kShapes[] = {{8, 16, 64, 64, 32}, {8, 16, 32, 32, 32}, {8, 8, 32, 32, 16}, {8, 16, 16, 32, 16}, {8, 8, 16, 16, 16}};
  std::vector<HaloTiling> result = list_folded_tap_tilings(c);
  for (const HaloTiling& candidate : kShapes)
    if (fills_channels(c, candidate)) result.push_back(candidate);
  return result;
}

}  // namespace

std::vector<HaloTiling> list_halo_tilings(const LowerContext& node, const ConvGemmParams& c) {
  constexpr int64_t kMaxPlanes = 2;
  std::vector<HaloTiling> result;
  if (!supports_mma_conv(node, c)) return result;
  for (const HaloTiling& candidate : list_split_k_tilings(node, c)) result.push_back(candidate);
  for (HaloTiling candidate : list_unsplit_tilings(c))
    for (candidate.planes = 1; candidate.planes <= std::min(kMaxPlanes, ceil_div(c.weights.channels_in, kPlaneChannels));
         ++candidate.planes)
      for (const bool prefetch : {false, true}) {
        candidate.prefetch = prefetch;
        if (fits_device(node, c, candidate)) result.push_back(candidate);
      }
  return result;
}

std::optional<HaloTiling> select_halo_tiling(const LowerContext& node, const ConvGemmParams& c) {
  if (!supports_mma_conv(node, c)) return {};
  const auto quick = choose_fastest_halo_tiling({c.x.n, c.out_h, c.out_w, c.weights.channels_in, c.weights.channels_out});
  if (!quick) return {};
  std::vector<HaloTiling> shapes = list_folded_tap_tilings(c);
  shapes.push_back(*quick);
  const auto result = std::ranges::find_if(shapes, [&](const HaloTiling& candidate) { return fits_device(node, c, candidate); });
  return result == shapes.end() ? std::nullopt : std::optional(*result);
}

std::vector<MmaTiling> list_conv_mma_tilings(const LowerContext& node, const ConvGemmParams& c, int64_t pixels) {
  return supports_mma_conv(node, c) ? list_mma_tilings(node, pixels) : std::vector<MmaTiling>{};
}

std::optional<MmaTiling> select_conv_mma_tiling(const LowerContext& node, const ConvGemmParams& c) {
  if (!supports_mma_conv(node, c)) return {};
  return choose_fastest_mma_tiling(node, {c.x.n, c.out_h, c.out_w, c.weights.channels_in, c.weights.channels_out}, c.taps_h * c.taps_w);
}

}  // namespace pumice

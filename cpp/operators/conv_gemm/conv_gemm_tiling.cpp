#include "operators/conv_gemm/conv_gemm_tiling.h"

#include <cmath>

#include "core/rounding.h"
#include "dispatch/kernel/driver_bug_test.h"

namespace pumice {

bool has_vector_channels(NchwView planes, int64_t channels, int64_t group_stride, int64_t width) {
  planes.c = channels;
  return planes.has_vector_channels(width) && group_stride % width == 0;
}

// Whether a workgroup of the device supports this tile.
static bool fits_device(const NodeContext& node, const SharedMemoryTiling& tiling) {
  return tiling.invocations() <= node.max_invocations() &&
         tiling.shared_bytes() <= static_cast<int64_t>(node.context->limit("maxComputeSharedMemorySize"));
}

// Whether K can be split as in `next`. The shared memory stays within kSharedBytes: on an H200, a workgroup with more than 24 KB occupies a
// whole multiprocessor.
static bool can_split_k(const NodeContext& node, const SharedMemoryTiling& next, int64_t k) {
  constexpr int64_t kMaxSplitK = 8, kMaxInvocations = 512, kSharedBytes = 24576;
  return next.split <= kMaxSplitK && next.invocations() <= kMaxInvocations && next.shared_bytes() <= kSharedBytes &&
         fits_device(node, next) && k >= next.split * 32;
}

std::vector<SharedMemoryTiling> list_shared_memory_tilings(const NodeContext& node, int64_t pixels, int64_t channels, int64_t k) {
  constexpr SharedMemoryTiling kTilings[] = {{128, 8},           {64, 16},          {8, 64},           {16, 16},
                                             {32, 32},           {64, 64},          {32, 64, 1, 4, 8}, {128, 32, 1, 8, 4},
                                             {128, 32, 1, 8, 8}, {64, 64, 1, 8, 4}, {64, 64, 1, 8, 8}, {128, 64, 1, 8, 8},
                                             {128, 128, 1, 8, 8}};
  std::vector<SharedMemoryTiling> result;
  for (SharedMemoryTiling candidate : kTilings) {
    const bool is_filled = candidate.pixels <= 2 * std::max<int64_t>(pixels, 8) && candidate.channels <= 2 * std::max<int64_t>(channels, 8);
    if (!is_filled || !fits_device(node, candidate)) continue;
    result.push_back(candidate);
    for (candidate.split = 2; can_split_k(node, candidate, k); candidate.split *= 2) result.push_back(candidate);
  }
  return result;
}

static int64_t count_tiles(const SharedMemoryTiling& tiling, int64_t pixels, int64_t channels) {
  return ceil_div(pixels, tiling.pixels) * ceil_div(channels, tiling.channels);
}

// Returns the tile without split-K. Register tiles have eight pixels (and eight channels, if there are enough of them) if at least two
// tiles per multiprocessor of a large device remain.
static SharedMemoryTiling select_unsplit_tiling(const NodeContext& node, int64_t pixels, int64_t channels, int64_t groups) {
  constexpr int64_t kFewTiles = 16, kManyTiles = 128, kTwiceTiles = 256;
  constexpr SharedMemoryTiling kNarrow{64, 16}, kTall{128, 32, 1, 8, 4}, kSquare{64, 64}, kDeep{128, 64, 1, 8, 8}, kWide{128, 128, 1, 8, 8};
  const auto has = [&](const SharedMemoryTiling& tiling, int64_t tiles) {
    return count_tiles(tiling, pixels, channels) * groups >= tiles && fits_device(node, tiling);
  };
  if (channels <= 8) return {128, 8};
  if (channels <= 16) return has(kNarrow, kFewTiles) ? kNarrow : SharedMemoryTiling{16, 16};
  if (pixels <= 8) return {8, 64};
  if (channels <= 32) return has(kTall, kTwiceTiles) ? kTall : SharedMemoryTiling{32, 32};
  if (channels >= 128 && has(kWide, kManyTiles)) return kWide;
  if (has(kDeep, kTwiceTiles)) return kDeep;
  return has(kSquare, kManyTiles) ? kSquare : SharedMemoryTiling{32, 32};
}

SharedMemoryTiling select_shared_memory_tiling(const NodeContext& node, int64_t pixels, int64_t channels, int64_t groups, int64_t k) {
  // Small outputs double split-K until kBusyInvocations invocations occupy the device.
  constexpr int64_t kBusyInvocations = 65536;
  const auto tiles_of = [&](const SharedMemoryTiling& tiling) { return count_tiles(tiling, pixels, channels) * groups; };
  SharedMemoryTiling tiling = select_unsplit_tiling(node, pixels, channels, groups);
  const int64_t tiles = tiles_of(tiling);
  const bool is_busy = tiling.thread_pixels > 4;  // with large register tiles, each invocation has enough work
  for (SharedMemoryTiling next = tiling; !is_busy && tiles * tiling.invocations() < kBusyInvocations; tiling = next) {
    next.split *= 2;
    if (!can_split_k(node, next, k)) break;
  }
  const auto is_too_long = [&](const SharedMemoryTiling& candidate) {
    return candidate.iterations(k) > node.loop_limit().value_or(INT64_MAX);
  };
  if (!is_too_long(tiling)) return tiling;
  // Drivers with loop limits use the smallest tile and the largest split-K, because it has the shortest loops.
  SharedMemoryTiling small{16, 16};
  for (SharedMemoryTiling next = small; is_too_long(small) && fits_device(node, next); next.split *= 2) small = next;
  return small;
}

namespace {

constexpr int64_t kNarrowTile = 16;
constexpr CoopmatTiling kCoopmatTilings[] = {
    {128, 128, 64, 64, 32}, {128, 64, 32, 32, 64}, {128, 32, 32, 32, 32}, {128, kNarrowTile, 32, kNarrowTile, 64},
    {64, 64, 32, 32, 64},   {32, 64, 16, 32, 64},  {16, 64, 16, 16, 64}};
// Tilings for GEMM (docs/tuning.md). The K tiles of kFew and kTinyM are large enough for split-K over subgroups if there are few rows.
constexpr CoopmatTiling kWide{128, 128, 64, 64, 64}, kFew{64, 32, 32, 32, 128, 8}, kTinyM{16, 32, 16, 16, 384, 6};
// Tilings whose subgroups split the K of a tile. They are used for up to kMaxSplitKTiles tiles, which is one wave of the GPU.
constexpr CoopmatTiling kSplitKTilings[] = {{32, 32, 32, 32, 128, 8}, {32, 64, 32, 32, 128, 8}, {64, 64, 32, 32, 128, 4}};
// Tilings for convolutions with few pixels, and with many pixels but few channels.
constexpr CoopmatTiling kConvTilings[] = {
    {16, 64, 16, 32, 128, 4}, {16, 64, 16, 16, 128, 2}, {128, 64, 64, 32, 32}, {256, 64, 64, 64, 32}, {256, 32, 64, 32, 32}};

// Whether the device has cooperative matrices for this dtype and x's channels form aligned vec8s.
bool supports_coopmat(const LowerContext& node, const ConvGemmParams& c) {
  constexpr int64_t kEight = 8;
  const bool all_taps =
      c.is_gemm || (c.tap_first == 0 && c.tap_row == c.taps_w && c.tap_column == 1 && c.weights.taps == c.taps_h * c.taps_w);
  if (!node.has_coopmat() || !all_taps || c.weights.channels_in == 0 || (node.input_misalignment(0) != 0 && !c.padded) ||
      c.x_first % kEight != 0 || c.w_first % kEight != 0)
    return false;
  const int64_t channels = c.padded ? round_up(c.weights.channels_in, kEight) : c.weights.channels_in;
  return has_vector_channels(c.x, channels, c.x_stride_group, kEight);
}

bool fits_device(const NodeContext& node, const CoopmatTiling& tiling) {
  const uint64_t shared = node.context->limit("maxComputeSharedMemorySize"), subgroup = node.context->info().matrix_subgroup_size();
  return tiling.shared_bytes() <= shared &&
         static_cast<uint64_t>(tiling.subgroups()) * subgroup <= static_cast<uint64_t>(node.max_invocations());
}

}  // namespace

std::vector<CoopmatTiling> list_coopmat_tilings(const LowerContext& node, const ConvGemmParams& c, int64_t pixels) {
  if (!supports_coopmat(node, c) || (c.is_gemm && c.weights.channels_out < kNarrowTile)) return {};
  std::vector<CoopmatTiling> candidates(std::begin(kCoopmatTilings), std::end(kCoopmatTilings)), result;
  candidates.insert(candidates.end(), std::begin(kSplitKTilings), std::end(kSplitKTilings));
  if (c.is_gemm)
    candidates.insert(candidates.end(), {kWide, kFew, kTinyM});
  else
    candidates.insert(candidates.end(), std::begin(kConvTilings), std::end(kConvTilings));
  for (const CoopmatTiling& candidate : candidates) {
    const bool is_filled =
        candidate.pixels <= 2 * std::max<int64_t>(pixels, 16) && candidate.channels <= 2 * std::max<int64_t>(c.weights.channels_out, 32);
    if (is_filled && fits_device(node, candidate)) result.push_back(candidate);
  }
  return result;
}

std::optional<CoopmatTiling> select_coopmat_tiling(const LowerContext& node, const ConvGemmParams& c, int64_t pixels) {
  constexpr int64_t kBusyTiles = 100, kMaxSplitKTiles = 128, kMinSplitKDepth = 512, kDeep = 1024;
  if (!supports_coopmat(node, c)) return {};
  const int64_t channels = c.weights.channels_out;
  const auto tiles_of = [&](const CoopmatTiling& tiling) {
    return ceil_div(pixels, tiling.pixels) * ceil_div(channels, tiling.channels) * c.weights.groups;
  };
  const auto fits = [&](const CoopmatTiling& tiling) { return fits_device(node, tiling); };
  if (c.is_gemm && tiles_of(kWide) >= kBusyTiles && channels > 64 && pixels > 64 && fits(kWide)) return kWide;
  if (c.is_gemm && fits(kTinyM) && c.weights.channels_in >= kDeep && channels >= 32) {
    if (pixels <= kTinyM.pixels) return kTinyM;
    if (pixels <= kFew.pixels && tiles_of(kFew) < 2 * kBusyTiles && fits(kFew)) return kFew;
  }
  if (c.taps_h * c.taps_w * c.weights.channels_in >= kMinSplitKDepth && channels > 32)
    for (const CoopmatTiling& tiling : kSplitKTilings)
      if (tiles_of(tiling) <= kMaxSplitKTiles && fits(tiling)) return tiling;
  for (const CoopmatTiling& tiling : kCoopmatTilings) {
    // If a GEMM has slightly more tiles than one wave, most of the second wave is idle, and the next smaller tile is better. Tiles of 32
    // columns are used only for N <= 32.
    const bool suits = !c.is_gemm || tiling.pixels < 128 || (tiling.channels == 64 ? tiles_of(tiling) >= 2 * kBusyTiles : channels <= 32);
    if (suits && fits(tiling) && tiles_of(tiling) >= kBusyTiles && (tiling.channels == kNarrowTile || tiling.channels < 2 * channels))
      return tiling;
  }
  const CoopmatTiling& smallest = kCoopmatTilings[std::size(kCoopmatTilings) - 1];
  return channels < kNarrowTile || !fits(smallest) ? std::nullopt : std::optional(smallest);
}

bool has_small_windows(const ConvGemmParams& c) {
  constexpr int64_t kFar = 1 << 15;
  const auto is_near = [](int64_t step, int64_t taps, int64_t tap_step) {
    return step > 0 && step < kFar && tap_step > 0 && tap_step < kFar && taps * tap_step < kFar;
  };
  return is_near(c.in_step_h, c.taps_h, c.tap_step_h) && is_near(c.in_step_w, c.taps_w, c.tap_step_w);
}

bool supports_gemv_col_major(const NodeContext& node, const WeightView& weights) {
  constexpr int64_t kMinK = 256;
  return !node.prefers_cpu_kernels() && node.subgroup_size() > 0 && node.max_invocations() >= kColMajorThreads &&
         weights.channels_in % 8 == 0 && weights.channels_in >= kMinK;
}

int64_t get_gemv_columns_per_group(const NodeContext& node) {
  return kColMajorThreads / node.subgroup_size();
}

int64_t get_max_col_major_columns(const NodeContext& node, int64_t k) {
  const int64_t groups = static_cast<int64_t>(std::min<uint64_t>(node.context->limit("maxComputeWorkGroupCount_1"), INT32_MAX));
  const int64_t column_bytes = k * static_cast<int64_t>(bits(node.float_dtype)) / 8;
  return std::max<int64_t>(std::min(groups * get_gemv_columns_per_group(node), max_binding_bytes(*node.context) / column_bytes), 1);
}

bool has_vec4_columns(const NodeContext& node, const ConvGemmParams& c, uint64_t misalignment) {
  constexpr int64_t kFour = 4;
  const WeightView& w = c.weights;
  return w.stride_in == 1 && w.channels_in % kFour == 0 && w.stride_out % kFour == 0 && c.w_stride_group % kFour == 0 &&
         c.w_first % kFour == 0 && misalignment % (kFour * bits(node.float_dtype) / 8) == 0;
}

namespace {

// Cost model of a gemm_mma tile, in microseconds, fitted to measurements (docs/tuning.md).
// resident: number of resident workgroups per multiprocessor.
// launch: fixed cost.
// wave: cost of a wave of resident workgroups. wave_per_k: additional cost of a wave per 1,000 elements of K.
// busiest_per_k: cost of a tile on the busiest multiprocessor per 1,000 elements of K.
// average_per_k: cost of a tile per 1,000 elements of K, times the average number of tiles per multiprocessor.
struct MmaCost {
  MmaTiling tiling;
  double resident, launch, wave, wave_per_k, busiest_per_k, average_per_k;

  double estimate_microseconds(int64_t m, int64_t n, int64_t steps, int64_t multiprocessors) const {
    const double tiles = static_cast<double>(ceil_div(m, tiling.m) * ceil_div(n, tiling.n));
    const double tiles_per_sm = tiles / static_cast<double>(multiprocessors), max_tiles = std::ceil(tiles_per_sm),
                 kilo_k = static_cast<double>(steps) / 1000;
    const double waves = std::ceil(tiles_per_sm / resident);
    return launch + waves * wave + kilo_k * (waves * wave_per_k + max_tiles * busiest_per_k + tiles_per_sm * average_per_k);
  }
};

constexpr MmaCost kMmaCosts[] = {
    {{32, 32, 32, 32, 8, 1, true}, 2, 2.02, 1.54, 0.81, 0.61, 0.32}, {{32, 32, 32, 32, 8, 2, true}, 1, 2.74, 1.24, 1.05, 0, 0.56},
    {{32, 48, 32, 48, 4, 1, true}, 3, 2.49, 0.85, 2.06, 0.66, 0.47}, {{32, 64, 32, 32, 2, 1, true}, 4, 2.11, 0.86, 3.59, 1.29, 0},
    {{32, 64, 32, 32, 4, 1, true}, 2, 2.25, 1.07, 1.49, 1.45, 0.1},  {{32, 64, 32, 32, 4, 2, true}, 1, 1.91, 1.5, 2.3, 0, 0.21},
    {{64, 96, 32, 48, 1, 1, true}, 3, 0.99, 2.25, 9.54, 0.72, 1.84}, {{64, 96, 32, 48, 1, 1}, 4, 2.29, 0, 13.85, 0, 2.82}};

// For large GEMMs, the engine chooses between gemm_mma with in-place loads and conv_coopmat with its largest tile.
constexpr MmaTiling kInPlaceTiling{.m = 128, .n = 64, .sub_m = 64, .sub_n = 64, .split = 1, .unroll = 1, .in_place = true};
constexpr MmaCost kInPlaceCost{kInPlaceTiling, 4, 2.6, 2.6, 23.2, 0, 0};
constexpr MmaCost kCoopmatCost{{128, 128, 64, 64, 1, 1}, 2, 3.35, 3.16, 3.19, 9.93, 0.87};

constexpr MmaTiling kSmallMTiling{16, 32, 16, 32, 16, 2};

bool fits_device(const NodeContext& node, const MmaTiling& tiling) {
  const auto emulated = static_cast<uint64_t>(node.count_emulation_shared_bytes(tiling.subgroups() * 32));
  return tiling.shared_bytes() + emulated <= node.context->limit("maxComputeSharedMemorySize") &&
         tiling.subgroups() * 32 <= node.max_invocations();
}

}  // namespace

std::vector<MmaTiling> list_mma_tilings(const NodeContext& node, int64_t m) {
  std::vector<MmaTiling> result;
  if (m <= 2 * kSmallMTiling.m && fits_device(node, kSmallMTiling)) result.push_back(kSmallMTiling);
  for (const MmaCost& cost : kMmaCosts)
    if (fits_device(node, cost.tiling)) result.push_back(cost.tiling);
  return result;
}

std::optional<MmaTiling> select_in_place_tiling(const NodeContext& node, int64_t m, int64_t n, int64_t k) {
  const bool is_whole = m % kInPlaceTiling.m == 0 && n % kInPlaceTiling.n == 0 && k % 32 == 0;
  return is_whole && node.has_or_emulates_mma() && fits_device(node, kInPlaceTiling) ? std::optional(kInPlaceTiling) : std::nullopt;
}

// Returns the gemm_mma tile for a GEMM with very many outputs, if it is faster than the kernels with shared memory. It is not if the
// operands exceed the L2 cache, because one prefetched chunk does not hide the latency of device memory.
static std::optional<MmaTiling> select_large_tiling(const NodeContext& node, int64_t m, int64_t n, int64_t k) {
  constexpr int64_t kCached = 48 << 20;  // bytes; an H200 has 50 MB of L2 cache
  if ((m + n) * k * 2 > kCached) return {};
  const auto estimate_cost = [&](const MmaCost& cost) { return cost.estimate_microseconds(m, n, k, node.num_multiprocessors()); };
  if (estimate_cost(kInPlaceCost) >= estimate_cost(kCoopmatCost)) return {};
  return select_in_place_tiling(node, m, n, k);
}

std::optional<MmaTiling> select_mma_tiling(const NodeContext& node, int64_t m, int64_t n, int64_t k, bool is_gemm) {
  // All other GEMMs with more than kMaxResults outputs are faster through shared memory, except GEMMs with few rows, whose time is bound by
  // reading w.
  constexpr int64_t kMinK = 256, kMinColumns = 64, kMaxResults = 3 << 20, kFewRows = 64;
  if (!node.has_or_emulates_mma() || k % 8 != 0 || k < kMinK || n < kMinColumns) return {};
  if (m > kFewRows && m * n > kMaxResults) return is_gemm ? select_large_tiling(node, m, n, k) : std::nullopt;
  const auto fits = [&](const MmaTiling& tiling) { return fits_device(node, tiling); };
  const int64_t multiprocessors = node.num_multiprocessors();
  if (m <= kSmallMTiling.m && fits(kSmallMTiling)) return kSmallMTiling;
  const MmaCost* best = nullptr;
  for (const MmaCost& cost : kMmaCosts)
    if (fits(cost.tiling) &&
        (!best || cost.estimate_microseconds(m, n, k, multiprocessors) < best->estimate_microseconds(m, n, k, multiprocessors)))
      best = &cost;
  return best ? std::optional(best->tiling) : std::nullopt;
}

namespace {

// Each subgroup needs two sets of accumulators. The remaining registers suffice for subgroup tiles of 32x32, and for 64x32 with one chunk
// at a time. The first tile has the lowest requirements.
constexpr MmaTiling kSplitFp16Tilings[] = {
    {32, 32, 32, 32, 1, 1},       {32, 32, 32, 32, 4, 1}, {32, 32, 32, 32, 8, 1}, {32, 64, 32, 32, 2, 1, true},
    {64, 64, 32, 32, 2, 1, true}, {64, 64, 32, 32, 1, 2}, {64, 64, 64, 32, 1, 1}, {64, 64, 32, 32, 1, 2, false, true}};

}  // namespace

bool can_split_fp16(const NodeContext& node, int64_t m, int64_t n, int64_t k) {
  constexpr int64_t kMinK = 32, kMinColumns = 16;
  if (!node.split_fp16 || (!node.split_fp16->exact_left && m * count_split_row_elements(k) * 2 > max_binding_bytes(*node.context)))
    return false;
  return node.supports_split_fp16() && m > kMaxGemvRows && k % 8 == 0 && k >= kMinK && n >= kMinColumns &&
         fits_device(node, kSplitFp16Tilings[0]);
}

bool prefers_split_fp16(const NodeContext& node, int64_t m, int64_t n, int64_t k) {
  // Splitting rows costs an extra dispatch, which is only worthwhile for larger GEMMs.
  constexpr int64_t kMinK = 256, kMinColumns = 64, kMinSplitWork = 1 << 27;
  if (!can_split_fp16(node, m, n, k) || k < kMinK || n < kMinColumns) return false;
  return node.split_fp16->exact_left || m * n * k >= kMinSplitWork;
}

std::vector<MmaTiling> list_split_fp16_tilings(const NodeContext& node) {
  std::vector<MmaTiling> result;
  for (const MmaTiling& candidate : kSplitFp16Tilings)
    if (fits_device(node, candidate)) result.push_back(candidate);
  return result;
}

MmaTiling select_split_fp16_tiling(const NodeContext& node, int64_t m, int64_t n, int64_t k) {
  constexpr int64_t kDeepest = 1024;
  constexpr MmaTiling kWhole{64, 64, 32, 32, 1, 2}, kLowFirst{64, 64, 32, 32, 1, 2, false, true}, kLarge{64, 64, 32, 32, 2, 1, true},
      kFew{32, 32, 32, 32, 4, 1}, kSmall{32, 32, 32, 32, 8, 1};
  const int64_t cores = node.num_multiprocessors();
  const auto tiles_of = [&](const MmaTiling& tiling) { return ceil_div(m, tiling.m) * ceil_div(n, tiling.n); };
  const auto suits = [&](const MmaTiling& candidate, int64_t min_tiles) {
    return tiles_of(candidate) >= min_tiles && fits_device(node, candidate) && k >= 32 * candidate.split;
  };
  // The low-first order reads fp16 rows twice, which is worthwhile for large K. Rows that are themselves split would be read three times.
  if (k > kDeepest && node.split_fp16->exact_left && suits(kLowFirst, 2 * cores)) return kLowFirst;
  if (suits(kWhole, 2 * cores)) return kWhole;
  if (suits(kLarge, cores)) return kLarge;
  if (suits(kFew, cores)) return kFew;
  return suits(kSmall, 0) ? kSmall : kSplitFp16Tilings[0];
}

std::vector<GemvTiling> list_gemv_tilings(const LowerContext& node, const ConvGemmParams& c, int64_t pixels) {
  constexpr int64_t kMinK = 128, kBytes = 36;  // minimum K; bytes of shared memory per invocation
  if (node.prefers_cpu_kernels() || !c.is_gemm || pixels > kMaxGemvRows || c.weights.channels_in < kMinK || c.w_first % 8 != 0) return {};
  const int64_t shared = static_cast<int64_t>(node.context->limit("maxComputeSharedMemorySize")), max_invocations = node.max_invocations();
  std::vector<GemvTiling> result;
  for (const int64_t invocations : {1024, 512})
    if (invocations <= max_invocations && invocations * kBytes <= shared) {
      const int64_t m = pixels == 3 ? 4 : pixels;
      result.push_back({m, invocations / m});
    }
  return result;
}

std::optional<GemvTiling> select_gemv_tiling(const LowerContext& node, const ConvGemmParams& c, int64_t pixels) {
  const std::vector<GemvTiling> found = list_gemv_tilings(node, c, pixels);
  return found.empty() ? std::nullopt : std::optional(found.front());
}

}  // namespace pumice

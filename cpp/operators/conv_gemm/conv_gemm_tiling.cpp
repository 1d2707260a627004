#include "operators/conv_gemm/conv_gemm_tiling.h"

#include <cmath>

#include "core/rounding.h"
#include "dispatch/kernel/driver_trial.h"

namespace pumice {

bool has_vector_channels(Planes planes, int64_t channels, int64_t group_stride, int64_t width) {
  planes.c = channels;
  return planes.has_vector_channels(width) && group_stride % width == 0;
}

// Whether a workgroup of the device supports this tile.
static bool fits_device(const NodeContext& node, const Tiling& tiling) {
  return tiling.invocations() <= node.most_invocations() &&
         tiling.shared_bytes() <= static_cast<int64_t>(node.context->limit("maxComputeSharedMemorySize"));
}

// Whether K can be split this many times. Splits stay within kSharedBytes: on an H200, a workgroup with more than 24 KB of shared memory
// occupies a whole multiprocessor.
static bool can_split(const NodeContext& node, const Tiling& wider, int64_t depth) {
  constexpr int64_t kMostSplit = 8, kMostInvocations = 512, kSharedBytes = 24576;
  return wider.split <= kMostSplit && wider.invocations() <= kMostInvocations && wider.shared_bytes() <= kSharedBytes &&
         fits_device(node, wider) && depth >= wider.split * 32;
}

std::vector<Tiling> tilings(const NodeContext& node, int64_t pixels, int64_t channels, int64_t depth) {
  constexpr Tiling kTilings[] = {{128, 8},           {64, 16},          {8, 64},           {16, 16},
                                 {32, 32},           {64, 64},          {32, 64, 1, 4, 8}, {128, 32, 1, 8, 4},
                                 {128, 32, 1, 8, 8}, {64, 64, 1, 8, 4}, {64, 64, 1, 8, 8}, {128, 64, 1, 8, 8},
                                 {128, 128, 1, 8, 8}};
  std::vector<Tiling> found;
  for (Tiling one : kTilings) {
    const bool is_filled = one.pixels <= 2 * std::max<int64_t>(pixels, 8) && one.channels <= 2 * std::max<int64_t>(channels, 8);
    if (!is_filled || !fits_device(node, one)) continue;
    found.push_back(one);
    for (one.split = 2; can_split(node, one, depth); one.split *= 2) found.push_back(one);
  }
  return found;
}

static int64_t tiles_in(const Tiling& tiling, int64_t pixels, int64_t channels) {
  return ceil_div(pixels, tiling.pixels) * ceil_div(channels, tiling.channels);
}

// Tile without split-K. Register tiles have eight pixels, and eight channels if they fill the tile, if this leaves at least two tiles per
// multiprocessor of a large device.
static Tiling whole_tiling_of(const NodeContext& node, int64_t pixels, int64_t channels, int64_t groups) {
  constexpr int64_t kFewTiles = 16, kManyTiles = 128, kTwiceTiles = 256;
  constexpr Tiling kNarrow{64, 16}, kTall{128, 32, 1, 8, 4}, kSquare{64, 64}, kDeep{128, 64, 1, 8, 8}, kWide{128, 128, 1, 8, 8};
  const auto has = [&](const Tiling& tiling, int64_t tiles) {
    return tiles_in(tiling, pixels, channels) * groups >= tiles && fits_device(node, tiling);
  };
  if (channels <= 8) return {128, 8};
  if (channels <= 16) return has(kNarrow, kFewTiles) ? kNarrow : Tiling{16, 16};
  if (pixels <= 8) return {8, 64};
  if (channels <= 32) return has(kTall, kTwiceTiles) ? kTall : Tiling{32, 32};
  if (channels >= 128 && has(kWide, kManyTiles)) return kWide;
  if (has(kDeep, kTwiceTiles)) return kDeep;
  return has(kSquare, kManyTiles) ? kSquare : Tiling{32, 32};
}

Tiling tiling_of(const NodeContext& node, int64_t pixels, int64_t channels, int64_t groups, int64_t depth) {
  // Small outputs use split-K until kBusyInvocations occupy the device.
  constexpr int64_t kBusyInvocations = 65536;
  const auto tiles_of = [&](const Tiling& tiling) { return tiles_in(tiling, pixels, channels) * groups; };
  Tiling tiling = whole_tiling_of(node, pixels, channels, groups);
  const int64_t tiles = tiles_of(tiling);
  const bool is_busy = tiling.held_pixels > 4;  // large register tiles: each invocation has enough work
  for (Tiling wider = tiling; !is_busy && tiles * tiling.invocations() < kBusyInvocations; tiling = wider) {
    wider.split *= 2;
    if (!can_split(node, wider, depth)) break;
  }
  const auto is_too_long = [&](const Tiling& one) { return one.iterations(depth) > node.loop_limit().value_or(INT64_MAX); };
  if (!is_too_long(tiling)) return tiling;
  // Drivers with loop limits get the smallest tile with the largest split-K.
  Tiling small{16, 16};
  for (Tiling wider = small; is_too_long(small) && fits_device(node, wider); wider.split *= 2) small = wider;
  return small;
}

namespace {

constexpr int64_t kNarrowTile = 16;
constexpr MatrixTiling kMatrixTilings[] = {
    {128, 128, 64, 64, 32}, {128, 64, 32, 32, 64}, {128, 32, 32, 32, 32}, {128, kNarrowTile, 32, kNarrowTile, 64},
    {64, 64, 32, 32, 64},   {32, 64, 16, 32, 64},  {16, 64, 16, 16, 64}};
// For GEMM (docs/tuning.md). kFew and kFewest have K tiles large enough for split-K over subgroups if there are few rows.
constexpr MatrixTiling kWide{128, 128, 64, 64, 64}, kFew{64, 32, 32, 32, 128, 8}, kFewest{16, 32, 16, 16, 384, 6};
// Used for up to kMostShared tiles, one wave of the GPU; subgroups split the K of a tile.
constexpr MatrixTiling kShared[] = {{32, 32, 32, 32, 128, 8}, {32, 64, 32, 32, 128, 8}, {64, 64, 32, 32, 128, 4}};
// For convolutions: with few pixels, and with many pixels but few channels.
constexpr MatrixTiling kOfConvolutions[] = {
    {16, 64, 16, 32, 128, 4}, {16, 64, 16, 16, 128, 2}, {128, 64, 64, 32, 32}, {256, 64, 64, 64, 32}, {256, 32, 64, 32, 32}};

// Whether the device has cooperative matrices for this dtype and x's channels form aligned vec8s.
bool takes_matrices(const LowerContext& node, const Contraction& c) {
  constexpr int64_t kEight = 8;
  const bool all_taps =
      c.matrix || (c.tap_first == 0 && c.tap_row == c.taps_w && c.tap_column == 1 && c.weights.taps == c.taps_h * c.taps_w);
  if (!node.has_matrices() || !all_taps || c.weights.channels_in == 0 || (node.input_phase(0) != 0 && !c.padded) ||
      c.x_first % kEight != 0 || c.w_first % kEight != 0)
    return false;
  const int64_t channels = c.padded ? round_up(c.weights.channels_in, kEight) : c.weights.channels_in;
  return has_vector_channels(c.x, channels, c.x_stride_group, kEight);
}

bool fits_device(const NodeContext& node, const MatrixTiling& tiling) {
  const uint64_t shared = node.context->limit("maxComputeSharedMemorySize"), subgroup = node.context->limit("subgroupSize");
  return tiling.shared_bytes() <= shared &&
         static_cast<uint64_t>(tiling.subgroups()) * subgroup <= static_cast<uint64_t>(node.most_invocations());
}

}  // namespace

std::vector<MatrixTiling> matrix_tilings(const LowerContext& node, const Contraction& c, int64_t pixels) {
  if (!takes_matrices(node, c) || (c.matrix && c.weights.channels_out < kNarrowTile)) return {};
  std::vector<MatrixTiling> every(std::begin(kMatrixTilings), std::end(kMatrixTilings)), found;
  every.insert(every.end(), std::begin(kShared), std::end(kShared));
  if (c.matrix)
    every.insert(every.end(), {kWide, kFew, kFewest});
  else
    every.insert(every.end(), std::begin(kOfConvolutions), std::end(kOfConvolutions));
  for (const MatrixTiling& one : every) {
    const bool is_filled =
        one.pixels <= 2 * std::max<int64_t>(pixels, 16) && one.channels <= 2 * std::max<int64_t>(c.weights.channels_out, 32);
    if (is_filled && fits_device(node, one)) found.push_back(one);
  }
  return found;
}

std::optional<MatrixTiling> matrix_tiling_of(const LowerContext& node, const Contraction& c, int64_t pixels) {
  constexpr int64_t kBusyTiles = 100, kMostShared = 128, kLeastShared = 512, kDeep = 1024;
  if (!takes_matrices(node, c)) return {};
  const int64_t channels = c.weights.channels_out;
  const auto tiles_of = [&](const MatrixTiling& tiling) {
    return ceil_div(pixels, tiling.pixels) * ceil_div(channels, tiling.channels) * c.weights.groups;
  };
  const auto fits = [&](const MatrixTiling& tiling) { return fits_device(node, tiling); };
  if (c.matrix && tiles_of(kWide) >= kBusyTiles && channels > 64 && pixels > 64 && fits(kWide)) return kWide;
  if (c.matrix && fits(kFewest) && c.weights.channels_in >= kDeep && channels >= 32) {
    if (pixels <= kFewest.pixels) return kFewest;
    if (pixels <= kFew.pixels && tiles_of(kFew) < 2 * kBusyTiles && fits(kFew)) return kFew;
  }
  if (c.taps_h * c.taps_w * c.weights.channels_in >= kLeastShared && channels > 32)
    for (const MatrixTiling& tiling : kShared)
      if (tiles_of(tiling) <= kMostShared && fits(tiling)) return tiling;
  for (const MatrixTiling& tiling : kMatrixTilings) {
    // For GEMM, slightly more than one wave of tiles wastes most of the second wave; the next smaller tile is better. Tiles of 32 columns
    // are only used for N <= 32.
    const bool suits = !c.matrix || tiling.pixels < 128 || (tiling.channels == 64 ? tiles_of(tiling) >= 2 * kBusyTiles : channels <= 32);
    if (suits && fits(tiling) && tiles_of(tiling) >= kBusyTiles && (tiling.channels == kNarrowTile || tiling.channels < 2 * channels))
      return tiling;
  }
  const MatrixTiling& least = kMatrixTilings[std::size(kMatrixTilings) - 1];
  return channels < kNarrowTile || !fits(least) ? std::nullopt : std::optional(least);
}

bool has_near_taps(const Contraction& c) {
  constexpr int64_t kFar = 1 << 15;
  const auto is_near = [](int64_t step, int64_t taps, int64_t tap_step) {
    return step > 0 && step < kFar && tap_step > 0 && tap_step < kFar && taps * tap_step < kFar;
  };
  return is_near(c.in_step_h, c.taps_h, c.tap_step_h) && is_near(c.in_step_w, c.taps_w, c.tap_step_w);
}

bool has_columns_kernel(const NodeContext& node, const WeightView& weights) {
  constexpr int64_t kLeastDepth = 256;
  return !node.prefers_lanes() && node.subgroup() > 0 && node.most_invocations() >= kColumnsGroup && weights.channels_in % 8 == 0 &&
         weights.channels_in >= kLeastDepth;
}

int64_t columns_at_once(const NodeContext& node) {
  return kColumnsGroup / node.subgroup();
}

int64_t most_columns(const NodeContext& node, int64_t depth) {
  const int64_t groups = static_cast<int64_t>(std::min<uint64_t>(node.context->limit("maxComputeWorkGroupCount_1"), INT32_MAX));
  const int64_t column_bytes = depth * static_cast<int64_t>(bits(node.float_dtype)) / 8;
  return std::max<int64_t>(std::min(groups * columns_at_once(node), largest_range(*node.context) / column_bytes), 1);
}

bool has_vector_columns(const NodeContext& node, const Contraction& c, uint64_t phase) {
  constexpr int64_t kFour = 4;
  const WeightView& w = c.weights;
  return w.stride_in == 1 && w.channels_in % kFour == 0 && w.stride_out % kFour == 0 && c.w_stride_group % kFour == 0 &&
         c.w_first % kFour == 0 && phase % (kFour * bits(node.float_dtype) / 8) == 0;
}

namespace {

// Cost model of a gemm_mma tile, in microseconds, with the number of resident workgroups per multiprocessor. begin: launch; wave: per
// wave of resident workgroups; wave_depth: per wave and 1,000 of K; turn_depth: per tile of the busiest multiprocessor and 1,000 of K;
// share_depth: per average number of tiles per multiprocessor and 1,000 of K. Fitted to measurements (docs/tuning.md).
struct QuadCost {
  QuadTiling tiling;
  double resident, begin, wave, wave_depth, turn_depth, share_depth;

  double microseconds(int64_t rows, int64_t columns, int64_t steps, int64_t multiprocessors) const {
    const double tiles = static_cast<double>(ceil_div(rows, tiling.rows) * ceil_div(columns, tiling.columns));
    const double share = tiles / static_cast<double>(multiprocessors), turns = std::ceil(share), deep = static_cast<double>(steps) / 1000;
    const double waves = std::ceil(share / resident);
    return begin + waves * wave + deep * (waves * wave_depth + turns * turn_depth + share * share_depth);
  }
};

constexpr QuadCost kQuadCosts[] = {
    {{32, 32, 32, 32, 8, 1, true}, 2, 2.02, 1.54, 0.81, 0.61, 0.32}, {{32, 32, 32, 32, 8, 2, true}, 1, 2.74, 1.24, 1.05, 0, 0.56},
    {{32, 48, 32, 48, 4, 1, true}, 3, 2.49, 0.85, 2.06, 0.66, 0.47}, {{32, 64, 32, 32, 2, 1, true}, 4, 2.11, 0.86, 3.59, 1.29, 0},
    {{32, 64, 32, 32, 4, 1, true}, 2, 2.25, 1.07, 1.49, 1.45, 0.1},  {{32, 64, 32, 32, 4, 2, true}, 1, 1.91, 1.5, 2.3, 0, 0.21},
    {{64, 96, 32, 48, 1, 1, true}, 3, 0.99, 2.25, 9.54, 0.72, 1.84}, {{64, 96, 32, 48, 1, 1}, 4, 2.29, 0, 13.85, 0, 2.82}};

// A large GEMM uses the faster of gemm_mma with in-place loads and conv_coopmat with its largest tile.
constexpr QuadTiling kInPlace{.rows = 128, .columns = 64, .sub_rows = 64, .sub_columns = 64, .split = 1, .ahead = 1, .in_place = true};
constexpr QuadCost kLargeInPlace{kInPlace, 4, 2.6, 2.6, 23.2, 0, 0};
constexpr QuadCost kLargeInShared{{128, 128, 64, 64, 1, 1}, 2, 3.35, 3.16, 3.19, 9.93, 0.87};

constexpr QuadTiling kOfFewRows{16, 32, 16, 32, 16, 2};

bool fits_device(const NodeContext& node, const QuadTiling& tiling) {
  const auto emulated = static_cast<uint64_t>(node.emulated_bytes(tiling.subgroups() * 32));
  return tiling.shared_bytes() + emulated <= node.context->limit("maxComputeSharedMemorySize") &&
         tiling.subgroups() * 32 <= node.most_invocations();
}

}  // namespace

std::vector<QuadTiling> quad_tilings(const NodeContext& node, int64_t rows) {
  std::vector<QuadTiling> found;
  if (rows <= 2 * kOfFewRows.rows && fits_device(node, kOfFewRows)) found.push_back(kOfFewRows);
  for (const QuadCost& cost : kQuadCosts)
    if (fits_device(node, cost.tiling)) found.push_back(cost.tiling);
  return found;
}

std::optional<QuadTiling> in_place_tiling(const NodeContext& node, int64_t rows, int64_t columns, int64_t depth) {
  const bool is_whole = rows % kInPlace.rows == 0 && columns % kInPlace.columns == 0 && depth % 32 == 0;
  return is_whole && node.has_fragments() && fits_device(node, kInPlace) ? std::optional(kInPlace) : std::nullopt;
}

// Returns the tile for a GEMM with very many outputs, if it is faster than kernels with shared memory. Operands that exceed the cache are
// read from memory, and one prefetched chunk does not hide that latency.
static std::optional<QuadTiling> large_tiling_of(const NodeContext& node, int64_t rows, int64_t columns, int64_t depth) {
  constexpr int64_t kCached = 48 << 20;  // bytes; an H200 has 50 MB of L2 cache
  if ((rows + columns) * depth * 2 > kCached) return {};
  const auto microseconds = [&](const QuadCost& cost) { return cost.microseconds(rows, columns, depth, node.multiprocessors()); };
  if (microseconds(kLargeInPlace) >= microseconds(kLargeInShared)) return {};
  return in_place_tiling(node, rows, columns, depth);
}

std::optional<QuadTiling> quad_tiling_of(const NodeContext& node, int64_t rows, int64_t columns, int64_t depth, bool is_product) {
  // Other GEMMs with more than kMostResults outputs are faster through shared memory, except with few rows, where reading w is the
  // bottleneck.
  constexpr int64_t kLeastDepth = 256, kLeastColumns = 64, kMostResults = 3 << 20, kFewRows = 64;
  if (!node.has_fragments() || depth % 8 != 0 || depth < kLeastDepth || columns < kLeastColumns) return {};
  if (rows > kFewRows && rows * columns > kMostResults) return is_product ? large_tiling_of(node, rows, columns, depth) : std::nullopt;
  const auto fits = [&](const QuadTiling& tiling) { return fits_device(node, tiling); };
  const int64_t multiprocessors = node.multiprocessors();
  if (rows <= kOfFewRows.rows && fits(kOfFewRows)) return kOfFewRows;
  const QuadCost* best = nullptr;
  for (const QuadCost& cost : kQuadCosts)
    if (fits(cost.tiling) &&
        (!best || cost.microseconds(rows, columns, depth, multiprocessors) < best->microseconds(rows, columns, depth, multiprocessors)))
      best = &cost;
  return best ? std::optional(best->tiling) : std::nullopt;
}

namespace {

// Two sets of accumulators leave registers for subgroup tiles of 32x32, and for 64x32 with one chunk at a time. The first tile has the
// lowest requirements.
constexpr QuadTiling kHalvesTilings[] = {
    {32, 32, 32, 32, 1, 1},       {32, 32, 32, 32, 4, 1}, {32, 32, 32, 32, 8, 1}, {32, 64, 32, 32, 2, 1, true},
    {64, 64, 32, 32, 2, 1, true}, {64, 64, 32, 32, 1, 2}, {64, 64, 64, 32, 1, 1}, {64, 64, 32, 32, 1, 2, false, true}};

}  // namespace

bool fits_halves(const NodeContext& node, int64_t rows, int64_t columns, int64_t depth) {
  constexpr int64_t kLeastDepth = 32, kLeastColumns = 16;
  if (!node.halves || (!node.halves->exact_left && rows * split_elements(depth) * 2 > largest_range(*node.context))) return false;
  return node.takes_halves() && rows > kMostSkinny && depth % 8 == 0 && depth >= kLeastDepth && columns >= kLeastColumns &&
         fits_device(node, kHalvesTilings[0]);
}

bool prefers_halves(const NodeContext& node, int64_t rows, int64_t columns, int64_t depth) {
  // Splitting rows costs an extra dispatch, which is only worthwhile for larger GEMMs.
  constexpr int64_t kLeastDepth = 256, kLeastColumns = 64, kLeastSplit = 1 << 27;
  if (!fits_halves(node, rows, columns, depth) || depth < kLeastDepth || columns < kLeastColumns) return false;
  return node.halves->exact_left || rows * columns * depth >= kLeastSplit;
}

std::vector<QuadTiling> halves_tilings(const NodeContext& node) {
  std::vector<QuadTiling> found;
  for (const QuadTiling& one : kHalvesTilings)
    if (fits_device(node, one)) found.push_back(one);
  return found;
}

QuadTiling halves_tiling_of(const NodeContext& node, int64_t rows, int64_t columns, int64_t depth) {
  constexpr int64_t kDeepest = 1024;
  constexpr QuadTiling kWhole{64, 64, 32, 32, 1, 2}, kLowFirst{64, 64, 32, 32, 1, 2, false, true}, kLarge{64, 64, 32, 32, 2, 1, true},
      kFew{32, 32, 32, 32, 4, 1}, kSmall{32, 32, 32, 32, 8, 1};
  const int64_t cores = node.multiprocessors();
  const auto tiles_of = [&](const QuadTiling& tiling) { return ceil_div(rows, tiling.rows) * ceil_div(columns, tiling.columns); };
  const auto suits = [&](const QuadTiling& one, int64_t least) {
    return tiles_of(one) >= least && fits_device(node, one) && depth >= 32 * one.split;
  };
  // The low-first order reads fp16 rows twice, which is worthwhile for large K; split rows would be read three times.
  if (depth > kDeepest && node.halves->exact_left && suits(kLowFirst, 2 * cores)) return kLowFirst;
  if (suits(kWhole, 2 * cores)) return kWhole;
  if (suits(kLarge, cores)) return kLarge;
  if (suits(kFew, cores)) return kFew;
  return suits(kSmall, 0) ? kSmall : kHalvesTilings[0];
}

std::vector<Skinny> skinnies_of(const LowerContext& node, const Contraction& c, int64_t pixels) {
  constexpr int64_t kLeastDepth = 128, kBytes = 36;  // minimum K; bytes of shared memory per invocation
  if (node.prefers_lanes() || !c.matrix || pixels > kMostSkinny || c.weights.channels_in < kLeastDepth || c.w_first % 8 != 0) return {};
  const int64_t shared = static_cast<int64_t>(node.context->limit("maxComputeSharedMemorySize")), most = node.most_invocations();
  std::vector<Skinny> found;
  for (const int64_t invocations : {1024, 512})
    if (invocations <= most && invocations * kBytes <= shared) {
      const int64_t rows = pixels == 3 ? 4 : pixels;
      found.push_back({rows, invocations / rows});
    }
  return found;
}

std::optional<Skinny> skinny_of(const LowerContext& node, const Contraction& c, int64_t pixels) {
  const std::vector<Skinny> found = skinnies_of(node, c, pixels);
  return found.empty() ? std::nullopt : std::optional(found.front());
}

}  // namespace pumice

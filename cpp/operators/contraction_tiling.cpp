#include "operators/contraction_tiling.h"

#include "core/rounding.h"

namespace pumice {

bool has_vector_channels(Planes planes, int64_t channels, int64_t group_stride, int64_t width) {
  planes.c = channels;
  return planes.has_vector_channels(width) && group_stride % width == 0;
}

Tiling tiling_of(const Context& context, int64_t pixels, int64_t channels, int64_t groups, int64_t depth) {
  constexpr int64_t kBusyInvocations = 65536, kMostSplit = 8, kMostInvocations = 512, kSharedBytes = 24576, kManyTiles = 128;
  const auto tiles_of = [&](const Tiling& tiling) {
    return ceil_div(pixels, tiling.pixels) * ceil_div(channels, tiling.channels) * groups;
  };
  Tiling tiling{32, 32};
  if (channels <= 8)
    tiling = {128, 8};
  else if (channels <= 16)
    tiling = {64, 16};
  else if (pixels <= 8)
    tiling = {8, 64};
  else if (const Tiling wide{128, 128, 1, 8}; channels >= 128 && tiles_of(wide) >= kManyTiles)
    return wide;
  else if (const Tiling square{64, 64}; tiles_of(square) >= kManyTiles)
    tiling = square;
  const int64_t tiles = tiles_of(tiling);
  const int64_t shared = std::min<int64_t>(kSharedBytes, static_cast<int64_t>(context.limit("maxComputeSharedMemorySize")));
  const auto fits = [&](int64_t split) {
    const Tiling wider{tiling.pixels, tiling.channels, split, tiling.registers};
    return split <= kMostSplit &&
           wider.invocations() <=
               std::min<int64_t>(kMostInvocations, static_cast<int64_t>(context.limit("maxComputeWorkGroupInvocations"))) &&
           split * ((tiling.pixels + tiling.channels) * 64 + 256) <= shared && depth >= split * 32;
  };
  while (tiles * tiling.invocations() < kBusyInvocations && fits(tiling.split * 2)) tiling.split *= 2;
  return tiling;
}

std::optional<MatrixTiling> matrix_tiling_of(const LowerContext& node, const Contraction& c, int64_t pixels) {
  constexpr int64_t kEight = 8, kBusyTiles = 100, kNarrow = 16;
  constexpr MatrixTiling kTilings[] = {
      {128, 128, 64, 64, 32}, {128, 64, 32, 32, 64}, {128, 32, 32, 32, 32}, {128, kNarrow, 32, kNarrow, 64},
      {64, 64, 32, 32, 64},   {32, 64, 16, 32, 64},  {16, 64, 16, 16, 64}};
  // Of matrix products alone, measured apart: deep enough that subgroups share the depth where the rows are few.
  constexpr MatrixTiling kWide{128, 128, 64, 64, 64}, kFew{64, 32, 32, 32, 128, 8}, kFewest{16, 32, 16, 16, 384, 6};
  // Of which there are at most so many, and which share the depth: for what the device does in one go.
  constexpr MatrixTiling kShared[] = {{32, 32, 32, 32, 128, 8}, {32, 64, 32, 32, 128, 8}, {64, 64, 32, 32, 128, 4}};
  constexpr int64_t kMostShared = 128, kLeastShared = 512, kDeep = 1024;
  const bool all_taps =
      c.matrix || (c.tap_first == 0 && c.tap_row == c.taps_w && c.tap_column == 1 && c.weights.taps == c.taps_h * c.taps_w);
  if (!node.has_matrices() || !all_taps || c.weights.channels_in == 0 || (node.input_phase(0) != 0 && !c.padded) ||
      c.x_first % kEight != 0 || c.w_first % kEight != 0 ||
      !has_vector_channels(c.x, c.padded ? round_up(c.weights.channels_in, kEight) : c.weights.channels_in, c.x_stride_group, kEight))
    return {};
  const int64_t channels = c.weights.channels_out;
  const auto tiles_of = [&](const MatrixTiling& tiling) {
    return ceil_div(pixels, tiling.pixels) * ceil_div(channels, tiling.channels) * c.weights.groups;
  };
  const uint64_t shared = node.context->limit("maxComputeSharedMemorySize");
  if (c.matrix && tiles_of(kWide) >= kBusyTiles && channels > 64 && pixels > 64 && kWide.shared_bytes() <= shared) return kWide;
  if (c.matrix && kFewest.shared_bytes() <= shared && c.weights.channels_in >= kDeep && channels >= 32) {
    if (pixels <= kFewest.pixels) return kFewest;
    if (pixels <= kFew.pixels && tiles_of(kFew) < 2 * kBusyTiles) return kFew;
  }
  if (c.matrix && c.weights.channels_in >= kLeastShared && channels > 32)
    for (const MatrixTiling& tiling : kShared)
      if (tiles_of(tiling) <= kMostShared && tiling.shared_bytes() <= shared) return tiling;
  for (const MatrixTiling& tiling : kTilings) {
    // Of matrix products: a few tiles more than the device does in one go are better smaller ones; those of 32 columns are for no more.
    const bool suits = !c.matrix || tiling.pixels < 128 || (tiling.channels == 64 ? tiles_of(tiling) >= 2 * kBusyTiles : channels <= 32);
    if (suits && tiles_of(tiling) >= kBusyTiles && (tiling.channels == kNarrow || tiling.channels < 2 * channels)) return tiling;
  }
  return channels < kNarrow ? std::nullopt : std::optional(kTilings[std::size(kTilings) - 1]);
}

bool has_columns_kernel(const NodeContext& node, const WeightView& weights) {
  constexpr int64_t kLeastDepth = 256;
  return !node.prefers_lanes() && node.subgroup() > 0 && weights.channels_in % 8 == 0 && weights.channels_in >= kLeastDepth;
}

std::optional<Skinny> skinny_of(const LowerContext& node, const Contraction& c, int64_t pixels) {
  constexpr int64_t kLeastDepth = 128, kBytes = 36;  // shared ones of an invocation
  if (node.prefers_lanes() || !c.matrix || pixels > kMostSkinny || c.weights.channels_in < kLeastDepth || c.w_first % 8 != 0) return {};
  const auto limit = [&](std::string_view name) { return static_cast<int64_t>(node.context->limit(name)); };
  const int64_t shared = limit("maxComputeSharedMemorySize"), most = limit("maxComputeWorkGroupInvocations");
  for (const int64_t invocations : {1024, 512})
    if (invocations <= most && invocations * kBytes <= shared) {
      const int64_t rows = pixels == 3 ? 4 : pixels;
      return Skinny{rows, invocations / rows};
    }
  return {};
}

}  // namespace pumice

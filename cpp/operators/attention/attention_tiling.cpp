#include "operators/attention/attention_tiling.h"

#include <algorithm>
#include <span>

#include "core/rounding.h"

namespace pumice {
namespace {

constexpr int64_t kMaxHeadSize = 256, kMinKeysPerSplit = 128;  // maximum number of elements of a head; minimum number of keys per split

// A tile configuration for cooperative matrices with its cost, measured on an H200 with a head size of 64.
struct TileConfig {
  int64_t subgroups, keys, resident = 1;  // keys per iteration; resident workgroups per multiprocessor
  double iteration_latency = 0,
         subgroup_cost = 0;  // microseconds: latency of one iteration; cost of one subgroup's iteration on a full device
  int64_t min_head_size = 0, max_head_size = 0;  // range of head sizes
  int64_t query_tiles = 1, key_slices = 1;
};
// attention_coopmat: K and V tiles share the same shared memory, and scores pass through it.
constexpr TileConfig kCoopmatTiles[] = {
    {2, 32, 8, 1.5, 0.2, 0, kMaxHeadSize}, {4, 32, 4, 1.65, 0.19, 0, kMaxHeadSize}, {8, 32, 2, 2.2, 0.165, 0, kMaxHeadSize}};
// attention_mma: scores stay in registers, which are scarce for heads of more than 128 elements. Configurations with two query tiles were
// measured only on a fully occupied device. A lone workgroup is assumed to be as slow as two workgroups that share a multiprocessor.
constexpr TileConfig kMmaTiles[] = {
    {2, 32, 6, 0.85, 0.117, 0, 128},  {4, 32, 4, 0.85, 0.096, 0, 128},      {8, 32, 2, 0.8, 0.084, 65, 128},
    {4, 64, 2, 1.4, 0.185, 0, 64},    {8, 64, 1, 1.6, 0.155, 65, 128},      {4, 16, 2, 0.8, 0.06, 129, kMaxHeadSize},
    {4, 64, 2, 2.5, 0.31, 64, 64, 2}, {4, 32, 2, 1.25, 0.185, 0, 64, 1, 2}, {4, 16, 2, 0.8, 0.1, 65, 128, 1, 2}};
// A configuration with two query tiles and double buffering that fits software devices, where tests emulate cooperative matrices. It is
// used only on explicit request.
constexpr TileConfig kTestTile{.subgroups = 1, .keys = 16, .query_tiles = 2};

// Returns the bytes of shared memory of a workgroup.
int64_t count_shared_bytes(const LowerContext& node, const AttentionParams& a, const AttentionTile& tile, bool is_mma) {
  constexpr int64_t kMinOutputStaging = 16 * 5;  // minimum size, in vectors, of a subgroup's output staging area
  const auto row = [](const HeadTensor& heads) { return round_up(heads.size(), 16) / 8 + 1; };
  if (!is_mma) {
    const int64_t score_vectors = tile.rows() * (tile.keys / 4 + 1);
    return (tile.keys * std::max(row(a.k), row(a.v)) + score_vectors) * 16;
  }
  const int64_t staging_vectors = tile.keys * tile.key_slices * (row(a.k) + row(a.v)) * tile.query_tiles;
  const int64_t partial_vectors =
      (tile.subgroups - tile.subgroups / tile.key_slices) * tile.query_tiles * (ceil_div(a.v.size(), 16) * 2 + 1) * kMmaSubgroup;
  return std::max({staging_vectors, partial_vectors, tile.subgroups * kMinOutputStaging}) * 16 +
         node.count_emulation_shared_bytes(tile.subgroups * kMmaSubgroup);
}

bool fits_device(const LowerContext& node, const AttentionParams& a, const AttentionTile& tile, bool is_mma) {
  const int64_t subgroup = is_mma ? kMmaSubgroup : node.matrix_subgroup_size();
  return count_shared_bytes(node, a, tile, is_mma) <= static_cast<int64_t>(node.context->limit("maxComputeSharedMemorySize")) &&
         tile.subgroups * subgroup <= static_cast<int64_t>(node.context->limit("maxComputeWorkGroupInvocations"));
}

// Returns the number of heads whose workgroups are scheduled together, in order of descending key count. Without causal masking it is one,
// so that concurrent workgroups read the same keys. With causal masking it is the number of heads whose K and V fit into the L2 cache.
int64_t choose_heads_per_group(const AttentionParams& a) {
  constexpr int64_t kCacheBytes = 32 << 20;  // bytes; an H200 has 50 MB of L2 cache
  const int64_t heads = a.q.batch() * a.q.heads(), group = a.q.heads() / a.k.heads();
  if (a.last >= a.k.rows()) return 1;
  const int64_t bytes = std::max<int64_t>(a.k.rows() * (a.k.size() + a.v.size()) * 2, 1);
  return std::clamp<int64_t>(kCacheBytes * group / bytes, 1, std::max<int64_t>(heads, 1));
}

}  // namespace

std::string AttentionTile::variant_name(bool is_mma) const {
  std::string variant = is_mma ? "attention_mma " : "attention_coopmat ";
  variant += std::to_string(subgroups) + " x " + std::to_string(keys) + " x " + std::to_string(query_tiles);
  variant += (key_slices > 1 ? ", " + std::to_string(key_slices) + " shares" : "");
  return variant + ", " + std::to_string(head_group) + " together";
}

bool supports_coopmat(const LowerContext& node, const AttentionParams& a) {
  const auto suits = [&](const HeadTensor& heads) {
    return heads.has_aligned_vectors(node.float_dtype, 8) && heads.size() <= kMaxHeadSize;
  };
  return suits(a.q) && suits(a.k) && suits(a.v) && a.k.size() > 0 && !a.has_int8_kv();
}

namespace {

// Returns the fastest configuration by the cost model. `avoid_spills`: skip kernels that are known to spill. A lone workgroup is bound by
// the latency of its iterations. On a full multiprocessor, subgroups hide each other's latency, and large workgroups share more loads.
// Merging key splits costs a dispatch and the traffic of the partial results.
std::optional<AttentionTile> find_fastest_tile(const LowerContext& node, const AttentionParams& a, bool is_mma, bool avoid_spills) {
  constexpr int64_t kMaxSplits = 8;
  const int64_t multiprocessors = node.num_multiprocessors();
  constexpr double kLaunchCost = 5, kMergeCost = 4, kMergeCostPerByte = 2.2e-6;
  const int64_t keys = a.k.rows(), size = std::max(a.k.size(), a.v.size()), rows = a.q.rows() * a.q.batch() * a.q.heads();
  const double relative_head_size = std::max<double>(static_cast<double>(a.k.size() + a.v.size()) / 128, 0.25);
  std::optional<AttentionTile> best;
  for (const TileConfig& kind : is_mma ? std::span<const TileConfig>(kMmaTiles) : std::span<const TileConfig>(kCoopmatTiles)) {
    AttentionTile tile{.subgroups = kind.subgroups, .keys = kind.keys, .query_tiles = kind.query_tiles, .key_slices = kind.key_slices};
    if (size < kind.min_head_size || size > kind.max_head_size || !fits_device(node, a, tile, is_mma)) continue;
    tile.head_group = choose_heads_per_group(a);
    if (avoid_spills && node.is_spilled(tile.variant_name(is_mma))) continue;
    const int64_t tiles = ceil_div(a.q.rows(), tile.rows()) * a.q.batch() * a.q.heads();
    const int64_t max_splits = kind.query_tiles > 1 ? 1 : std::clamp<int64_t>(keys / kMinKeysPerSplit, 1, kMaxSplits);
    for (tile.splits = 1; tile.splits <= max_splits; ++tile.splits) {
      int64_t groups_per_sm = ceil_div(tiles * tile.splits, multiprocessors);
      if (groups_per_sm > kind.resident) groups_per_sm = round_up(groups_per_sm, kind.resident);
      const double iteration_cost =
          std::max(kind.iteration_latency, kind.subgroup_cost * relative_head_size * static_cast<double>(groups_per_sm * kind.subgroups));
      const double merge_cost = static_cast<double>(rows * tile.splits * (a.v.size() + 2)) * 4 * kMergeCostPerByte;
      tile.microseconds = kLaunchCost + (tile.splits > 1 ? kMergeCost + merge_cost : 0) +
                          iteration_cost * static_cast<double>(ceil_div(ceil_div(keys, tile.splits), kind.keys * kind.key_slices));
      if (!best || tile.microseconds < best->microseconds) best = tile;
    }
  }
  return best;
}

}  // namespace

std::optional<AttentionTile> choose_attention_tile(const LowerContext& node, const AttentionParams& a, bool is_mma) {
  auto fastest = find_fastest_tile(node, a, is_mma, false);
  if (!fastest || !node.is_spilled(fastest->variant_name(is_mma))) return fastest;
  auto alternative = find_fastest_tile(node, a, is_mma, true);
  if (!alternative) return fastest;
  alternative->spilled = fastest->variant_name(is_mma);
  return alternative;
}

std::vector<AttentionTile> list_mma_attention_tiles(const LowerContext& node, const AttentionParams& a) {
  if (!node.has_or_emulates_mma() || !supports_coopmat(node, a)) return {};
  std::vector<AttentionTile> all_tiles;
  const auto add = [&](const TileConfig& kind) {
    for (int64_t head_group = 1; head_group <= 64; head_group *= 2) {
      AttentionTile tile{.subgroups = kind.subgroups,
                         .keys = kind.keys,
                         .query_tiles = kind.query_tiles,
                         .head_group = head_group,
                         .key_slices = kind.key_slices};
      if (fits_device(node, a, tile, true)) all_tiles.push_back(tile);
    }
  };
  std::ranges::for_each(kMmaTiles, add);
  add(kTestTile);
  return all_tiles;
}

}  // namespace pumice

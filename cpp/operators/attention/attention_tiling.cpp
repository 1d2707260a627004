#include "operators/attention/attention_tiling.h"

#include <algorithm>
#include <span>

#include "core/rounding.h"

namespace pumice {
namespace {

constexpr int64_t kLargest = 256, kLeastInPart = 128;  // maximum number of elements of a head; minimum number of keys per split

// A configuration on cooperative matrices with its cost, measured on an H200 with heads of 64.
struct MatrixKind {
  int64_t subgroups, keys, resident = 1;  // number of keys per iteration; number of resident workgroups per multiprocessor
  double latency = 0, turn = 0;           // microseconds: latency of an iteration, and throughput cost of a subgroup's iteration
  int64_t least_size = 0, most_size = 0;  // range of head sizes
  int64_t strips = 1, shares = 1;
};
// attention_coopmat: K and V tiles share the same shared memory, and scores pass through it.
constexpr MatrixKind kStaged[] = {
    {2, 32, 8, 1.5, 0.2, 0, kLargest}, {4, 32, 4, 1.65, 0.19, 0, kLargest}, {8, 32, 2, 2.2, 0.165, 0, kLargest}};
// attention_mma: scores stay in registers, which are scarce for heads of more than 128. Configurations with two query tiles were measured
// with a fully occupied device: the latency of a single workgroup is assumed to equal that of two per multiprocessor.
constexpr MatrixKind kQuads[] = {
    {2, 32, 6, 0.85, 0.117, 0, 128},  {4, 32, 4, 0.85, 0.096, 0, 128},      {8, 32, 2, 0.8, 0.084, 65, 128},
    {4, 64, 2, 1.4, 0.185, 0, 64},    {8, 64, 1, 1.6, 0.155, 65, 128},      {4, 16, 2, 0.8, 0.06, 129, kLargest},
    {4, 64, 2, 2.5, 0.31, 64, 64, 2}, {4, 32, 2, 1.25, 0.185, 0, 64, 1, 2}, {4, 16, 2, 0.8, 0.1, 65, 128, 1, 2}};
// Two query tiles with double buffering that fit software devices, where tests emulate fragments. Only used if requested explicitly.
constexpr MatrixKind kSmallStrips{.subgroups = 1, .keys = 16, .strips = 2};

// Returns the bytes of shared memory of a workgroup.
int64_t bytes_of(const LowerContext& node, const Attention& a, const MatrixShare& share, bool is_quads) {
  constexpr int64_t kOutStrip = 16 * 5;  // minimum size, in vectors, of a subgroup's output staging area
  const auto row = [](const Heads& heads) { return round_up(heads.size(), 16) / 8 + 1; };
  if (!is_quads) {
    const int64_t strips = share.rows() * (share.keys / 4 + 1);
    return (share.keys * std::max(row(a.k), row(a.v)) + strips) * 16;
  }
  const int64_t staged = share.keys * share.shares * (row(a.k) + row(a.v)) * share.strips;
  const int64_t met =
      (share.subgroups - share.subgroups / share.shares) * share.strips * (ceil_div(a.v.size(), 16) * 2 + 1) * kQuadsSubgroup;
  return std::max({staged, met, share.subgroups * kOutStrip}) * 16 + node.emulated_bytes(share.subgroups * kQuadsSubgroup);
}

bool fits(const LowerContext& node, const Attention& a, const MatrixShare& share, bool is_quads) {
  const int64_t subgroup = is_quads ? kQuadsSubgroup : node.subgroup();
  return bytes_of(node, a, share, is_quads) <= static_cast<int64_t>(node.context->limit("maxComputeSharedMemorySize")) &&
         share.subgroups * subgroup <= static_cast<int64_t>(node.context->limit("maxComputeWorkGroupInvocations"));
}

// Returns the number of heads whose workgroups are ordered together by descending key count. Without causal masking it is one, so that
// concurrent workgroups share its keys. With causal masking it is as many heads as fit in the cache with their K and V.
int64_t heads_together(const Attention& a) {
  constexpr int64_t kCached = 32 << 20;  // bytes; an H200 has 50 MB of L2 cache
  const int64_t heads = a.q.batch() * a.q.heads(), group = a.q.heads() / a.k.heads();
  if (a.last >= a.k.rows()) return 1;
  const int64_t bytes = std::max<int64_t>(a.k.rows() * (a.k.size() + a.v.size()) * 2, 1);
  return std::clamp<int64_t>(kCached * group / bytes, 1, std::max<int64_t>(heads, 1));
}

}  // namespace

std::string MatrixShare::name(bool is_quads) const {
  std::string text = is_quads ? "attention_mma " : "attention_coopmat ";
  text += std::to_string(subgroups) + " x " + std::to_string(keys) + " x " + std::to_string(strips);
  text += (shares > 1 ? ", " + std::to_string(shares) + " shares" : "");
  return text + ", " + std::to_string(together) + " together";
}

bool suits_matrices(const LowerContext& node, const Attention& a) {
  const auto suits = [&](const Heads& heads) { return heads.in_vectors(node.float_dtype, 8) && heads.size() <= kLargest; };
  return suits(a.q) && suits(a.k) && suits(a.v) && a.k.size() > 0 && !a.in_bytes();
}

namespace {

// Returns the fastest configuration; `spared`: only considers kernels that are not known to spill. A single workgroup needs its latency per
// iteration; on a full multiprocessor the subgroups alternate, and large workgroups share more loads. Merging key splits costs a dispatch
// and the traffic of the partial results.
std::optional<MatrixShare> quickest(const LowerContext& node, const Attention& a, bool is_quads, bool spared) {
  constexpr int64_t kMostParts = 8;
  const int64_t multiprocessors = node.multiprocessors();
  constexpr double kLaunch = 5, kMeeting = 4, kMeetingByte = 2.2e-6;
  const int64_t keys = a.k.rows(), size = std::max(a.k.size(), a.v.size()), rows = a.q.rows() * a.q.batch() * a.q.heads();
  const double longer = std::max<double>(static_cast<double>(a.k.size() + a.v.size()) / 128, 0.25);
  std::optional<MatrixShare> best;
  for (const MatrixKind& kind : is_quads ? std::span<const MatrixKind>(kQuads) : std::span<const MatrixKind>(kStaged)) {
    MatrixShare share{.subgroups = kind.subgroups, .keys = kind.keys, .strips = kind.strips, .shares = kind.shares};
    if (size < kind.least_size || size > kind.most_size || !fits(node, a, share, is_quads)) continue;
    share.together = heads_together(a);
    if (spared && node.is_spilled(share.name(is_quads))) continue;
    const int64_t tiles = ceil_div(a.q.rows(), share.rows()) * a.q.batch() * a.q.heads();
    const int64_t most_parts = kind.strips > 1 ? 1 : std::clamp<int64_t>(keys / kLeastInPart, 1, kMostParts);
    for (share.parts = 1; share.parts <= most_parts; ++share.parts) {
      int64_t on_core = ceil_div(tiles * share.parts, multiprocessors);
      if (on_core > kind.resident) on_core = round_up(on_core, kind.resident);
      const double step = std::max(kind.latency, kind.turn * longer * static_cast<double>(on_core * kind.subgroups));
      const double met = static_cast<double>(rows * share.parts * (a.v.size() + 2)) * 4 * kMeetingByte;
      share.microseconds = kLaunch + (share.parts > 1 ? kMeeting + met : 0) +
                           step * static_cast<double>(ceil_div(ceil_div(keys, share.parts), kind.keys * kind.shares));
      if (!best || share.microseconds < best->microseconds) best = share;
    }
  }
  return best;
}

}  // namespace

std::optional<MatrixShare> matrix_share(const LowerContext& node, const Attention& a, bool is_quads) {
  auto own = quickest(node, a, is_quads, false);
  if (!own || !node.is_spilled(own->name(is_quads))) return own;
  auto other = quickest(node, a, is_quads, true);
  if (!other) return own;
  other->spilled = own->name(is_quads);
  return other;
}

std::vector<MatrixShare> quads_shares(const LowerContext& node, const Attention& a) {
  if (!node.has_fragments() || !suits_matrices(node, a)) return {};
  std::vector<MatrixShare> shares;
  const auto add = [&](const MatrixKind& kind) {
    for (int64_t together = 1; together <= 64; together *= 2) {
      MatrixShare share{.subgroups = kind.subgroups, .keys = kind.keys, .strips = kind.strips, .together = together, .shares = kind.shares};
      if (fits(node, a, share, true)) shares.push_back(share);
    }
  };
  std::ranges::for_each(kQuads, add);
  add(kSmallStrips);
  return shares;
}

}  // namespace pumice

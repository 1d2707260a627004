#include "operators/conv_gemm/halo_tiling.h"

#include <algorithm>

#include "operators/conv_gemm/weight_packing.h"
#include "operators/conv_gemm/conv_gemm_tiling.h"

namespace pumice {
namespace {

constexpr int64_t kPlane = 32;           // input channels per plane
constexpr int64_t kSpreadColumns = 32;   // maximum number of x taps times output channels
constexpr int64_t kNarrowChannels = 16;  // output channels of one matrix

// Whether kernels with weights in fragment order support the convolution: one group, several taps, and aligned fp16 vec8s of channels.
bool takes_fragments(const LowerContext& node, const Contraction& c) {
  constexpr int64_t kEight = 8;
  const bool has_terms = !c.matrix && !c.integers && !pools(c) && c.order == WeightOrder::blocks && c.fragments > 0;
  if (!has_terms || !node.has_fragments() || c.weights.groups != 1 || c.taps_h * c.taps_w < 2 || c.x.h * c.x.w == 0) return false;
  const bool is_aligned = node.input_phase(0) == 0 && c.x_first % kEight == 0;
  return has_near_taps(c) && is_aligned && c.x_dtype == DType::float16 &&
         has_vector_channels(c.x, c.weights.channels_in, c.x_stride_group, kEight);
}

bool fits_halo(const LowerContext& node, const Contraction& c, const HaloTiling& tiling) {
  const auto limit = [&](const char* name) { return static_cast<int64_t>(std::min<uint64_t>(node.context->limit(name), INT32_MAX)); };
  return tiling.shared_bytes(c) + node.emulated_bytes(tiling.invocations()) <= limit("maxComputeSharedMemorySize") &&
         tiling.invocations() <= node.most_invocations() && tiling.tiles(c) <= limit("maxComputeWorkGroupCount_0") &&
         ceil_div(c.weights.channels_out, tiling.channels) <= limit("maxComputeWorkGroupCount_1");
}

// Whether the channels fill at least half a tile.
bool suits_channels(const Contraction& c, const HaloTiling& tiling) {
  const int64_t out = c.weights.channels_out;
  const bool is_narrow = out <= kNarrowChannels;
  return is_narrow == (tiling.channels == kNarrowChannels) && (is_narrow || tiling.channels <= round_up(out, 32));
}

}  // namespace

int64_t HaloTiling::area(const Contraction& c) const {
  return span_of_taps(rows, c.in_step_h, c.taps_h, c.tap_step_h) *
         (spread ? columns : span_of_taps(columns, c.in_step_w, c.taps_w, c.tap_step_w));
}

int64_t HaloTiling::shared_bytes(const Contraction& c) const {
  const int64_t pitch = spread ? channels + 1 : split > 1 ? channels + 4 : 0;
  return std::max(planes * (area(c) | 1) * 64, split * rows * columns * pitch * 4);
}

int64_t HaloTiling::emulated_iterations(const Contraction& c) const {
  constexpr int64_t kLine = 32;  // loop iterations to load or store one matrix
  const int64_t matrices = sub_pixels / 16 + sub_channels / 16, products = sub_pixels / 16 * (sub_channels / 16);
  const int64_t fetching = ceil_div(c.weights.channels_in, kPlane) * (4 + 3 * ceil_div(area(c) * 4, invocations()));
  const int64_t results = spread ? ceil_div(rows * columns, invocations()) * (c.weights.channels_out + 4) * (c.taps_w + 2) : 0;
  return depth(c) / kPlane / split * (2 * products * kEmulatedProduct + matrices * kLine) + fetching + products * kLine + results;
}

std::optional<HaloTiling> quick_halo(const MadeImages& made) {
  constexpr int64_t kBusyTiles = 100, kLeastDepth = 16;
  constexpr HaloTiling kNarrowTile{8, 16, 16, 32, 16}, kMiddle{8, 16, 32, 32, 32}, kWide{8, 16, 64, 64, 32};
  const HaloTiling& tiling = made.channels <= kNarrowChannels ? kNarrowTile : made.channels <= 32 ? kMiddle : kWide;
  const int64_t tiles = made.count * ceil_div(made.rows, tiling.rows) * ceil_div(made.columns, tiling.columns);
  if (made.channels_in < kLeastDepth || tiles * ceil_div(made.channels, tiling.channels) < kBusyTiles) return {};
  const bool is_filled =
      made.count * made.rows * made.columns * 2 >= tiles * tiling.rows * tiling.columns;  // tiles are at least half filled
  return is_filled ? std::optional(tiling) : std::nullopt;
}

std::optional<QuadTiling> quick_quads(const NodeContext& node, const MadeImages& made, int64_t taps) {
  constexpr int64_t kLeastDepth = 192;
  if (taps * made.channels_in < kLeastDepth || quick_halo(made)) return {};
  return quad_tiling_of(node, made.count * made.rows * made.columns, made.channels, taps * round_up(made.channels_in, kPlane), false);
}

bool can_hold_fragments(const NodeContext& node, const WeightView& weights) {
  constexpr int64_t kMostBytes = 1 << 23;  // maximum size of the second copy of the weights
  return node.has_fragments() && weights.groups == 1 && weights.taps > 1 && weights.channels_in % 8 == 0 && weights.channels_in > 0 &&
         weights.channels_out > 0 && fragment_elements(weights) * 2 <= std::min(kMostBytes, largest_range(*node.context));
}

bool can_spread(const WeightView& weights, int64_t taps_w) {
  return taps_w > 1 && weights.channels_out * taps_w <= kSpreadColumns;
}

int64_t first_fragment(const NodeContext& node, const WeightView& weights) {
  return round_up(packed_group(node, weights), kFragmentsBoundary);
}

namespace {

// Returns tiles with the x taps folded into N; empty if there are too many taps, or strides.
std::vector<HaloTiling> spread_shapes(const Contraction& c) {
  std::vector<HaloTiling> found;
  if (c.spread == 0 || c.in_step_h != 1 || c.in_step_w != 1) return found;
  const int64_t columns = round_up(c.weights.channels_out * c.taps_w, 16);
  for (HaloTiling one : {HaloTiling{4, 32, columns, 32, columns}, {8, 32, columns, 64, columns}, {2, 32, columns, 16, columns}}) {
    one.spread = true;
    if (one.made_columns(c) >= one.columns / 2) found.push_back(one);
  }
  return found;
}

// Returns tiles for small images, with split-K over subgroups and as many planes as fit. The unit of K is a kernel row of one plane, so
// there must be at least as many units as subgroups. With emulation, all invocations multiply together, so all subgroups need equally many
// units.
std::vector<HaloTiling> split_shapes(const LowerContext& node, const Contraction& c) {
  constexpr HaloTiling kShapes[] = {{8, 8, 16, 64, 16}, {8, 8, 32, 64, 32}, {8, 8, 32, 32, 32}};
  const int64_t all = ceil_div(c.weights.channels_in, kPlane);
  std::vector<HaloTiling> found;
  for (HaloTiling one : kShapes)
    for (one.split = 2, one.early = true; one.split <= 4; one.split *= 2) {
      const auto shares = [&](int64_t planes) { return !node.emulates_fragments() || planes * c.taps_h % one.split == 0; };
      const auto fits = [&] { return shares(one.planes) && shares(all % one.planes) && fits_halo(node, c, one); };
      for (one.planes = std::min<int64_t>(all, 4); one.planes > 0 && !fits();) --one.planes;
      if (one.planes * c.taps_h >= one.split && one.channels <= round_up(c.weights.channels_out, kNarrowChannels)) found.push_back(one);
    }
  return found;
}

std::vector<HaloTiling> shapes_of(const Contraction& c) {
  constexpr HaloTiling kShapes[] = {{8, 16, 64, 64, 32}, {8, 16, 32, 32, 32}, {8, 8, 32, 32, 16}, {8, 16, 16, 32, 16}, {8, 8, 16, 16, 16}};
  std::vector<HaloTiling> found = spread_shapes(c);
  for (const HaloTiling& one : kShapes)
    if (suits_channels(c, one)) found.push_back(one);
  return found;
}

}  // namespace

std::vector<HaloTiling> halo_tilings(const LowerContext& node, const Contraction& c) {
  constexpr int64_t kMostPlanes = 2;
  std::vector<HaloTiling> found;
  if (!takes_fragments(node, c)) return found;
  for (const HaloTiling& one : split_shapes(node, c)) found.push_back(one);
  for (HaloTiling one : shapes_of(c))
    for (one.planes = 1; one.planes <= std::min(kMostPlanes, ceil_div(c.weights.channels_in, kPlane)); ++one.planes)
      for (const bool early : {false, true}) {
        one.early = early;
        if (fits_halo(node, c, one)) found.push_back(one);
      }
  return found;
}

std::optional<HaloTiling> halo_tiling_of(const LowerContext& node, const Contraction& c) {
  if (!takes_fragments(node, c)) return {};
  const auto quick = quick_halo({c.x.n, c.out_h, c.out_w, c.weights.channels_in, c.weights.channels_out});
  if (!quick) return {};
  std::vector<HaloTiling> shapes = spread_shapes(c);
  shapes.push_back(*quick);
  const auto found = std::ranges::find_if(shapes, [&](const HaloTiling& one) { return fits_halo(node, c, one); });
  return found == shapes.end() ? std::nullopt : std::optional(*found);
}

std::vector<QuadTiling> quad_convolutions(const LowerContext& node, const Contraction& c, int64_t pixels) {
  return takes_fragments(node, c) ? quad_tilings(node, pixels) : std::vector<QuadTiling>{};
}

std::optional<QuadTiling> quad_convolution_of(const LowerContext& node, const Contraction& c) {
  if (!takes_fragments(node, c)) return {};
  return quick_quads(node, {c.x.n, c.out_h, c.out_w, c.weights.channels_in, c.weights.channels_out}, c.taps_h * c.taps_w);
}

}  // namespace pumice

// Chooses how the contraction kernels share out a product, by facts of the device and of the product.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "core/rounding.h"
#include "operators/contraction/contraction_terms.h"

namespace pumice {

// Whether neighbouring channels of a group form aligned vectors of so many.
bool has_vector_channels(Planes planes, int64_t channels, int64_t group_stride, int64_t width);

// Elements that neighbours along one axis of a convolution read, from the first to the last.
inline int64_t span_of_taps(int64_t outputs, int64_t step, int64_t taps, int64_t tap_step) {
  return (outputs - 1) * step + (taps - 1) * tap_step + 1;
}

// Whether windows go forward on both axes, and neither their steps nor they themselves reach so far that areas could not be reckoned with.
bool has_near_taps(const Contraction& c);

// The tile that a workgroup of conv_tiled computes, the number of parts that it splits the depth into, and an invocation's tile in
// registers, of 4 or 8 pixels by 4 or 8 channels.
struct Tiling {
  int64_t pixels, channels, split = 1, held_pixels = 4, held_channels = 4;

  int64_t part() const { return pixels * channels / (held_pixels * held_channels); }  // invocations that share one part of the depth
  int64_t invocations() const { return part() * split; }
  // How often an invocation's loops run at most, those over what it loads for a stretch among them.
  int64_t iterations(int64_t depth) const {
    const int64_t loads_x = ceil_div(pixels * 4, part()), loads_w = ceil_div(channels * 4, part());
    return ceil_div(depth, 16 * split) * (1 + 6 * loads_x + 2 * loads_w);
  }
  int64_t shared_bytes() const { return split * ((pixels + channels) * 64 + 256); }  // stretches 16 deep, whose rows of x are padded
};

// Large tiles reuse more of what they load; small and split ones keep all of the device busy on small outputs.
Tiling tiling_of(const NodeContext& node, int64_t pixels, int64_t channels, int64_t groups, int64_t depth);

// The tiles and splits that the device can run for so many pixels and channels and that leave less than half of a tile empty.
std::vector<Tiling> tilings(const NodeContext& node, int64_t pixels, int64_t channels, int64_t depth);

// The tile that a workgroup of conv_matrix computes, that of each of its subgroups, the depth of a stretch, and how many subgroups share
// that depth.
struct MatrixTiling {
  int64_t pixels, channels, sub_pixels, sub_channels, depth, split = 1;

  int64_t subgroups() const { return pixels / sub_pixels * (channels / sub_channels) * split; }
  uint64_t shared_bytes() const {  // the operands' stretches or results on their way out, rows padded by 16 bytes
    const int64_t in = pixels * (depth * 2 + 16) + depth * (channels * 2 + 16), out = subgroups() * 16 * (sub_channels * 4 + 16);
    return static_cast<uint64_t>(std::max(in, out));
  }
};

// The tiles for conv_matrix; none where the device has no matrix units for these elements, or where the input's channels do not lie
// together in aligned eights. It is the largest tile of which there are enough to keep the device busy, and which the channels fill by
// half.
std::optional<MatrixTiling> matrix_tiling_of(const LowerContext& node, const Contraction& c, int64_t pixels);

// All tiles for conv_matrix that it could be; empty where that is none.
std::vector<MatrixTiling> matrix_tilings(const LowerContext& node, const Contraction& c, int64_t pixels);

// The shape of gemv.comp: products of up to four rows take 1, 2 or 4 of them at once.
constexpr int64_t kMostSkinny = 4, kSkinnyChannels = 32, kSkinnyAhead = 8;

struct Skinny {
  int64_t rows, invocations;

  int64_t iterations(int64_t depth) const { return ceil_div(depth, invocations / (kSkinnyChannels / 8) * kSkinnyAhead) + invocations; }
};

// Whether products of a few rows are quicker with this matrix stored by columns: see gemv_columns.comp.
bool has_columns_kernel(const NodeContext& node, const WeightView& weights);
constexpr int64_t kColumnsGroup = 256, kMostColumnRows = 2;  // its workgroup; with more rows gemv.comp is quicker
// The columns that one workgroup of gemv_columns computes, and the most that one dispatch can take of a matrix so deep.
int64_t columns_at_once(const NodeContext& node);
int64_t most_columns(const NodeContext& node, int64_t depth);

// Pixels up to which gemv_lanes computes a contraction on a CPU driver, which takes them all in one workgroup.
constexpr int64_t kMostLaneRows = 8;
// Whether gemv_lanes reads the columns of an unpacked matrix in fours; `phase`: bytes from a boundary to where it begins.
bool has_vector_columns(const NodeContext& node, const Contraction& c, uint64_t phase);

constexpr int64_t kEmulatedProduct = 160;  // iterations of a product of two matrices where the units are emulated

// The tile that a workgroup of product_quads computes, that of each of its subgroups, how many subgroups share the depth of that, the
// chunks of 32 steps of the depth that each of them reads at once, and whether it does so while it multiplies those before.
struct QuadTiling {
  int64_t rows, columns, sub_rows, sub_columns, split, ahead;
  bool early = false;
  bool low_first = false;  // of product_halves: the products of low halves are summed before those of high ones, in the same sums
  bool in_place = false;   // a chunk's registers are read into again line by line, as the lines have been multiplied

  int64_t subgroups() const { return rows / sub_rows * (columns / sub_columns) * split; }
  uint64_t shared_bytes() const {
    if (in_place) return static_cast<uint64_t>(subgroups() * 16 * (sub_columns + 4) * 4);
    return static_cast<uint64_t>(split * rows * (columns + 4) * 4);
  }
  // How often an invocation's loops run at most where the units are emulated.
  int64_t emulated_iterations(int64_t depth) const {
    const int64_t turns = ceil_div(depth, 32 * split * ahead) * ahead, matrices = sub_rows / 16 * (sub_columns / 16);
    return (2 * turns * kEmulatedProduct + 32) * matrices;
  }
};

constexpr int64_t kLeastQuadColumns = 16;  // of a tile

// The tile for product_quads, which reads a matrix in fragments; none where another kernel is quicker, or the device cannot run it. Not
// is_product: for a convolution.
std::optional<QuadTiling> quad_tiling_of(const NodeContext& node, int64_t rows, int64_t columns, int64_t depth, bool is_product = true);

// The tile for large products, for which the kernel is compiled for a product's sizes; none where one of its tiles would be cut off.
std::optional<QuadTiling> in_place_tiling(const NodeContext& node, int64_t rows, int64_t columns, int64_t depth);

// The tiles for product_quads that the device can run, for products that quad_tiling_of() has one for.
std::vector<QuadTiling> quad_tilings(const NodeContext& node, int64_t rows);

// Whether product_halves computes a product in float32 with a matrix of two halves, and whether it does so by itself: where it is quicker
// than products of float32.
bool fits_halves(const NodeContext& node, int64_t rows, int64_t columns, int64_t depth);
bool prefers_halves(const NodeContext& node, int64_t rows, int64_t columns, int64_t depth);
// Halves of a row of float32 that is split: two for each element in whole eights, and an eight for the row's exponent.
inline int64_t split_elements(int64_t depth) {
  return 2 * round_up(depth, 8) + 8;
}
// The tile for that, and all that the device can run.
QuadTiling halves_tiling_of(const NodeContext& node, int64_t rows, int64_t columns, int64_t depth);
std::vector<QuadTiling> halves_tilings(const NodeContext& node);

// The shape for few rows; none where the rows are more, the depth is small, or the lanes of a software device compute it.
std::optional<Skinny> skinny_of(const LowerContext& node, const Contraction& c, int64_t pixels);
// All shapes that the device can run.
std::vector<Skinny> skinnies_of(const LowerContext& node, const Contraction& c, int64_t pixels);

}  // namespace pumice

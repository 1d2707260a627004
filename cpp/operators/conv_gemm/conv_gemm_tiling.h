// Chooses tile sizes and split-K for GEMM and convolution from device and problem size.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "core/rounding.h"
#include "operators/conv_gemm/conv_gemm_params.h"

namespace pumice {

// Whether the channels of a group form aligned vectors of `width` elements.
bool has_vector_channels(Planes planes, int64_t channels, int64_t group_stride, int64_t width);

// Number of input elements, from first to last, that `outputs` neighbours along one axis of a convolution read.
inline int64_t span_of_taps(int64_t outputs, int64_t step, int64_t taps, int64_t tap_step) {
  return (outputs - 1) * step + (taps - 1) * tap_step + 1;
}

// Whether windows move forward on both axes and strides and extents are small enough for the area computation not to overflow.
bool has_near_taps(const Contraction& c);

// Tile of conv_tiled: workgroup tile, split-K, and the register tile of an invocation, 4 or 8 pixels x 4 or 8 channels.
struct Tiling {
  int64_t pixels, channels, split = 1, held_pixels = 4, held_channels = 4;

  int64_t part() const { return pixels * channels / (held_pixels * held_channels); }  // invocations per K split
  int64_t invocations() const { return part() * split; }
  // Maximum loop iterations of an invocation, including the loads of each K tile.
  int64_t iterations(int64_t depth) const {
    const int64_t loads_x = ceil_div(pixels * 4, part()), loads_w = ceil_div(channels * 4, part());
    return ceil_div(depth, 16 * split) * (1 + 6 * loads_x + 2 * loads_w);
  }
  int64_t shared_bytes() const { return split * ((pixels + channels) * 64 + 256); }  // K tiles of 16, with padded x rows
};

// Large tiles reuse loaded data more often. Small tiles and split-K occupy the device if the output is small.
Tiling tiling_of(const NodeContext& node, int64_t pixels, int64_t channels, int64_t groups, int64_t depth);

// Returns the tilings that the device supports for this problem and that the problem fills to at least half.
std::vector<Tiling> tilings(const NodeContext& node, int64_t pixels, int64_t channels, int64_t depth);

// Tile of conv_coopmat: workgroup tile, subgroup tile, K tile, and split-K over subgroups.
struct MatrixTiling {
  int64_t pixels, channels, sub_pixels, sub_channels, depth, split = 1;

  int64_t subgroups() const { return pixels / sub_pixels * (channels / sub_channels) * split; }
  uint64_t shared_bytes() const {  // K tiles of both operands, or staged results; rows are padded by 16 bytes
    const int64_t in = pixels * (depth * 2 + 16) + depth * (channels * 2 + 16), out = subgroups() * 16 * (sub_channels * 4 + 16);
    return static_cast<uint64_t>(std::max(in, out));
  }
};

// Returns the tile for conv_coopmat: the largest one that keeps the device busy and is at least half filled by channels. Returns nullopt if
// the device has no cooperative matrices for this dtype, or if x's channels do not form aligned vec8s.
std::optional<MatrixTiling> matrix_tiling_of(const LowerContext& node, const Contraction& c, int64_t pixels);

// Returns all candidate tiles for conv_coopmat; empty if it cannot run.
std::vector<MatrixTiling> matrix_tilings(const LowerContext& node, const Contraction& c, int64_t pixels);

// Tile of gemv.comp: a GEMM with M <= 4 processes 1, 2 or 4 rows at a time.
constexpr int64_t kMostSkinny = 4, kSkinnyChannels = 32, kSkinnyAhead = 8;

struct Skinny {
  int64_t rows, invocations;

  int64_t iterations(int64_t depth) const { return ceil_div(depth, invocations / (kSkinnyChannels / 8) * kSkinnyAhead) + invocations; }
};

// Whether GEMV is faster with this matrix stored by columns: see gemv_col_major.comp.
bool has_columns_kernel(const NodeContext& node, const WeightView& weights);
constexpr int64_t kColumnsGroup = 256, kMostColumnRows = 2;  // workgroup size; for more rows than the maximum, gemv.comp is faster
// Columns per workgroup of gemv_col_major, and columns per dispatch for a matrix with this K.
int64_t columns_at_once(const NodeContext& node);
int64_t most_columns(const NodeContext& node, int64_t depth);

// Maximum pixels for gemv_cpu on CPU drivers, which processes them in one workgroup.
constexpr int64_t kMostLaneRows = 8;
// Whether gemv_cpu can load vec4s from an unpacked matrix. `phase`: byte distance of its start from the preceding 16-byte boundary.
bool has_vector_columns(const NodeContext& node, const Contraction& c, uint64_t phase);

constexpr int64_t kEmulatedProduct = 160;  // loop iterations per multiplication of two emulated matrices

// Tile of gemm_mma: workgroup tile, subgroup tile, split-K over subgroups, K chunks of 32 loaded at once, and whether the next chunks
// are prefetched during the multiplication.
struct QuadTiling {
  int64_t rows, columns, sub_rows, sub_columns, split, ahead;
  bool early = false;
  bool low_first = false;  // gemm_split_fp16: accumulate the products of low parts before those of high parts, in the same accumulators
  bool in_place = false;   // refill a chunk's registers row by row, as soon as each row has been multiplied

  int64_t subgroups() const { return rows / sub_rows * (columns / sub_columns) * split; }
  uint64_t shared_bytes() const {
    if (in_place) return static_cast<uint64_t>(subgroups() * 16 * (sub_columns + 4) * 4);
    return static_cast<uint64_t>(split * rows * (columns + 4) * 4);
  }
  // Maximum number of loop iterations per invocation with emulated fragments.
  int64_t emulated_iterations(int64_t depth) const {
    const int64_t turns = ceil_div(depth, 32 * split * ahead) * ahead, matrices = sub_rows / 16 * (sub_columns / 16);
    return (2 * turns * kEmulatedProduct + 32) * matrices;
  }
};

constexpr int64_t kLeastQuadColumns = 16;  // columns of a tile

// Returns the tile of the fragment GEMM gemm_mma; nullopt if another kernel is faster or the device cannot run it. is_product = false:
// a convolution.
std::optional<QuadTiling> quad_tiling_of(const NodeContext& node, int64_t rows, int64_t columns, int64_t depth, bool is_product = true);

// Returns the tile for large GEMMs, whose kernel is specialised for the problem size; nullopt if a tile would be partial.
std::optional<QuadTiling> in_place_tiling(const NodeContext& node, int64_t rows, int64_t columns, int64_t depth);

// Returns the tiles of gemm_mma that the device supports, for problems that have a quad_tiling_of().
std::vector<QuadTiling> quad_tilings(const NodeContext& node, int64_t rows);

// fits_halves: whether gemm_split_fp16 can compute an fp32 GEMM with a matrix whose elements are split into two fp16 values. prefers_halves:
// whether it is faster than the fp32 kernel.
bool fits_halves(const NodeContext& node, int64_t rows, int64_t columns, int64_t depth);
bool prefers_halves(const NodeContext& node, int64_t rows, int64_t columns, int64_t depth);
// Number of fp16 elements of a split fp32 row: two per element, padded to a multiple of 8, and 8 for the row's exponent.
inline int64_t split_elements(int64_t depth) {
  return 2 * round_up(depth, 8) + 8;
}
// Return the selected tile for gemm_split_fp16, and all tiles that the device supports.
QuadTiling halves_tiling_of(const NodeContext& node, int64_t rows, int64_t columns, int64_t depth);
std::vector<QuadTiling> halves_tilings(const NodeContext& node);

// Returns the tile for a GEMM with few rows; nullopt if there are more rows, K is small, or a CPU driver uses its SIMD kernels.
std::optional<Skinny> skinny_of(const LowerContext& node, const Contraction& c, int64_t pixels);
// Returns all variants that the device supports.
std::vector<Skinny> skinnies_of(const LowerContext& node, const Contraction& c, int64_t pixels);

}  // namespace pumice

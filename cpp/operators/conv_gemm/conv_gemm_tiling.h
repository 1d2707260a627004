// Chooses tile sizes and split-K for GEMM and convolution from device and problem size.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "core/rounding.h"
#include "operators/conv_gemm/conv_gemm_params.h"

namespace pumice {

// Whether the channels of a group form aligned vectors of `width` elements.
bool has_vector_channels(NchwView planes, int64_t channels, int64_t group_stride, int64_t width);

// Returns the number of input elements, from first to last, that `outputs` adjacent outputs of a convolution read along one axis.
inline int64_t compute_input_span(int64_t outputs, int64_t step, int64_t taps, int64_t tap_step) {
  return (outputs - 1) * step + (taps - 1) * tap_step + 1;
}

// Whether strides and dilations are positive, and so small that the size of a tile's input area cannot overflow.
bool has_small_windows(const ConvGemmParams& c);

// Tile of conv_tiled: the workgroup tile, split-K, and the register tile of an invocation (4 or 8 pixels x 4 or 8 channels).
struct SharedMemoryTiling {
  int64_t pixels, channels, split = 1, thread_pixels = 4, thread_channels = 4;

  int64_t count_threads_per_split() const { return pixels * channels / (thread_pixels * thread_channels); }  // invocations per K split
  int64_t invocations() const { return count_threads_per_split() * split; }
  // Returns the maximum number of loop iterations per invocation, including loops that load K tiles.
  int64_t iterations(int64_t k) const {
    const int64_t loads_x = ceil_div(pixels * 4, count_threads_per_split()), loads_w = ceil_div(channels * 4, count_threads_per_split());
    return ceil_div(k, 16 * split) * (1 + 6 * loads_x + 2 * loads_w);
  }
  int64_t shared_bytes() const { return split * ((pixels + channels) * 64 + 256); }  // K tiles of 16, with padded x rows
};

// Selects a tile. Large tiles reuse loaded data more often; small tiles and split-K keep the device busy if the output is small.
SharedMemoryTiling select_shared_memory_tiling(const NodeContext& node, int64_t pixels, int64_t channels, int64_t groups, int64_t k);

// Returns the tilings that the device supports and whose tiles this problem fills at least half.
std::vector<SharedMemoryTiling> list_shared_memory_tilings(const NodeContext& node, int64_t pixels, int64_t channels, int64_t k);

// Tile of conv_coopmat: workgroup tile, subgroup tile, K tile, and split-K over subgroups.
struct CoopmatTiling {
  int64_t pixels, channels, sub_pixels, sub_channels, k, split = 1;

  int64_t subgroups() const { return pixels / sub_pixels * (channels / sub_channels) * split; }
  uint64_t shared_bytes() const {  // bytes of the K tiles of both operands, or of staged results; rows are padded by 16 bytes
    const int64_t in = pixels * (k * 2 + 16) + k * (channels * 2 + 16), out = subgroups() * 16 * (sub_channels * 4 + 16);
    return static_cast<uint64_t>(std::max(in, out));
  }
};

// Returns the largest tile for conv_coopmat that keeps the device busy and that the channels fill at least half. Returns nullopt if the
// device has no cooperative matrices for this dtype, or if the channels of x do not form aligned vec8s.
std::optional<CoopmatTiling> select_coopmat_tiling(const LowerContext& node, const ConvGemmParams& c, int64_t pixels);

// Returns all candidate tiles for conv_coopmat; empty if it cannot run.
std::vector<CoopmatTiling> list_coopmat_tilings(const LowerContext& node, const ConvGemmParams& c, int64_t pixels);

// Tile of gemv.comp, a GEMM with M <= 4: 1, 2 or 4 rows at a time.
constexpr int64_t kMaxGemvRows = 4, kGemvColumns = 32, kGemvUnroll = 8;

struct GemvTiling {
  int64_t m, invocations;

  int64_t iterations(int64_t k) const { return ceil_div(k, invocations / (kGemvColumns / 8) * kGemvUnroll) + invocations; }
};

// Whether a matrix-vector product is faster with this matrix in column-major order: see gemv_col_major.comp.
bool supports_gemv_col_major(const NodeContext& node, const WeightView& weights);
constexpr int64_t kColMajorThreads = 256,
                  kMaxColMajorRows = 2;  // workgroup size; maximum number of rows for which gemv_col_major is faster than gemv
// Return the number of columns per workgroup of gemv_col_major, and its maximum number of columns per dispatch for a matrix with this K.
int64_t get_gemv_columns_per_group(const NodeContext& node);
int64_t get_max_col_major_columns(const NodeContext& node, int64_t k);

// Maximum number of rows for gemv_cpu on CPU drivers.
constexpr int64_t kMaxCpuRows = 8;
// Whether gemv_cpu can load vec4s from an unpacked matrix. `misalignment`: byte distance of the matrix from the preceding 16-byte boundary.
bool has_vec4_columns(const NodeContext& node, const ConvGemmParams& c, uint64_t misalignment);

constexpr int64_t kEmulatedMmaIterations = 160;  // loop iterations for the product of two emulated cooperative matrices

// Tile of gemm_mma: the workgroup tile, the subgroup tile, split-K over subgroups, the number of K chunks (of 32 elements) that are loaded
// at once, and whether the next chunks are prefetched during the multiplication.
struct MmaTiling {
  int64_t m, n, sub_m, sub_n, split, unroll;
  bool prefetch = false;
  bool low_first = false;  // gemm_split_fp16: accumulate the low parts' products, then the high parts', in the same accumulators
  bool in_place = false;   // refill a chunk's registers row by row, as soon as each row has been multiplied

  int64_t subgroups() const { return m / sub_m * (n / sub_n) * split; }
  uint64_t shared_bytes() const {
    if (in_place) return static_cast<uint64_t>(subgroups() * 16 * (sub_n + 4) * 4);
    return static_cast<uint64_t>(split * m * (n + 4) * 4);
  }
  // Returns the maximum number of loop iterations per invocation if cooperative matrices are emulated.
  int64_t count_emulated_iterations(int64_t k) const {
    const int64_t k_iterations = ceil_div(k, 32 * split * unroll) * unroll, matrices = sub_m / 16 * (sub_n / 16);
    return (2 * k_iterations * kEmulatedMmaIterations + 32) * matrices;
  }
};

constexpr int64_t kMinMmaColumns = 16;  // columns of the narrowest tile

// Returns the tile for gemm_mma; nullopt if another kernel is faster or the device cannot run gemm_mma. `is_gemm`: false for a convolution.
std::optional<MmaTiling> select_mma_tiling(const NodeContext& node, int64_t m, int64_t n, int64_t k, bool is_gemm = true);

// Returns the tile for a large GEMM, with a kernel that is specialised for the problem size. Returns nullopt if the size is not a multiple
// of the tile.
std::optional<MmaTiling> select_in_place_tiling(const NodeContext& node, int64_t m, int64_t n, int64_t k);

// Returns the tiles of gemm_mma that the device supports, for problems that select_mma_tiling() accepts.
std::vector<MmaTiling> list_mma_tilings(const NodeContext& node, int64_t m);

// can_split_fp16: whether gemm_split_fp16 can compute this fp32 GEMM, with matrix elements split into two fp16 values.
// prefers_split_fp16: whether gemm_split_fp16 is faster than the fp32 kernel.
bool can_split_fp16(const NodeContext& node, int64_t m, int64_t n, int64_t k);
bool prefers_split_fp16(const NodeContext& node, int64_t m, int64_t n, int64_t k);
// Returns the number of fp16 elements of an fp32 row that is split: two per element, padded to a multiple of 8, plus 8 for the row's
// exponent.
inline int64_t count_split_row_elements(int64_t k) {
  return 2 * round_up(k, 8) + 8;
}
// Return the best tile for gemm_split_fp16, and all its tiles that the device supports.
MmaTiling select_split_fp16_tiling(const NodeContext& node, int64_t m, int64_t n, int64_t k);
std::vector<MmaTiling> list_split_fp16_tilings(const NodeContext& node);

// Returns the tile for a GEMM with few rows. Returns nullopt for more rows, for a small K, and for CPU drivers, which use gemv_cpu.
std::optional<GemvTiling> select_gemv_tiling(const LowerContext& node, const ConvGemmParams& c, int64_t pixels);
// Returns all tiles of gemv.comp that the device supports.
std::vector<GemvTiling> list_gemv_tilings(const LowerContext& node, const ConvGemmParams& c, int64_t pixels);

}  // namespace pumice

// Weight layouts of the GEMM and convolution kernels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "core/rounding.h"
#include "operators/conv_gemm/conv_gemm_params.h"

namespace pumice {

inline constexpr int64_t kCpuChannels = 16;  // output channels per subgroup in conv_cpu
// Adjacent input channels that conv_cpu multiplies per step.
inline int64_t get_cpu_step_channels(int64_t channels_in) {
  return std::clamp<int64_t>(channels_in, 1, 4);
}

// Whether input 1 (weights) is constant and was packed at load. Other weights are packed at every execution.
inline bool has_packed_weights(const LowerContext& node) {
  return node.constant_packed.size() > 1 && node.constant_packed[1];
}

// Returns the number of packed elements per group.
int64_t count_packed_elements_per_group(const NodeContext& node, const WeightView& weights);
// Returns the number of output channels of a group that are packed together as a block: all, unless a dispatch cannot process that many.
// The block that starts at channel `first` has the offset at which the packed weights of a group with `first` channels would end.
int64_t get_channels_per_block(const NodeContext& node, const WeightView& weights, DType weight_dtype);
// Packs weights with any strides into the layout of the GEMM and convolution kernels, block by block.
void pack_weights(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, double scale, PackedWeight& packed);
// Packs constant input `input`, which must be row-major.
void pack_weights(const PackContext& node, size_t input, const WeightView& weights, double scale, PackedWeight& packed);
// Returns the number of weight elements packed by pack_fragments().
inline int64_t count_fragment_elements(const WeightView& weights) {
  return round_up(weights.channels_out, 8) * round_up(weights.channels_in, 32) * weights.taps;
}
inline constexpr uint32_t kSplitFp16Bits = 32;  // bits per element that is split into two fp16 values
// Returns the number of columns (a multiple of 8) whose packed fragments and source, with element_bits bits per element, fit into one
// binding.
int64_t get_columns_per_binding(const NodeContext& node, const WeightView& weights, uint32_t element_bits);
// Packs a matrix or convolution weights in the fragment order of gemm_mma and conv_halo: [columns / 8][K / 32][taps][32 lanes][8].
// Lane 4 g + t has the 8 elements k = 8 t .. 8 t + 7 of column g. Missing elements are zero.
void pack_fragments(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, double scale, PackedWeight& packed);
// Returns the number of packed elements of convolution weights whose `width` horizontal taps are folded into N:
// [columns / 8][channels_in / 32][rows of taps][32 lanes][8], where column = tap * channels_out + channel.
inline int64_t count_folded_tap_elements(const WeightView& weights, int64_t width) {
  return round_up(weights.channels_out * width, 8) * round_up(weights.channels_in, 32) * (weights.taps / width);
}
void pack_folded_taps(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, int64_t width,
                      PackedWeight& packed);
// Like pack_fragments(), but scales elements by 2^-exponent and splits each into two fp16 values:
// [columns / 8][K / 32][high, low][32 lanes][8].
void pack_split_fp16(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, int exponent, PackedWeight& packed);
// Packs a matrix whose rows are the input channels of `rows`, with rows padded to a multiple of 8.
void pack_rows(const NodeContext& node, const TensorDesc& source_desc, const WeightView& rows, double scale, PackedWeight& packed);

// Packs weights with any strides into a device-independent layout, [groups][out / 16][taps][in / 4][16][4], padded with zeros.
void pack_cpu_weights(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, PackedWeight& packed);
// Like pack_weights(), for 8-bit integers, unscaled.
void pack_integer_weights(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, PackedWeight& packed);
// Matrix rows of `k` dense elements, `stride` elements apart.
struct MatrixRows {
  int64_t count, k, stride;
};

// Return the kernel and the step that pad contiguous rows of 8-bit or 16-bit elements to multiples of 16 bytes. `pad`: the padding word.
std::shared_ptr<const KernelVariant> make_pad_rows_kernel(const NodeContext& node, DType dtype, std::string_view pad);
Step make_pad_rows_step(const std::shared_ptr<const KernelVariant>& kernel, DType dtype, const Operand& x, const Operand& y,
                        const MatrixRows& rows);

}  // namespace pumice

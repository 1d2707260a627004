// Weights as the contraction kernels read them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "core/rounding.h"
#include "operators/contraction/contraction_terms.h"

namespace pumice {

inline constexpr int64_t kLaneChannels = 16;  // output channels of a subgroup of conv_lanes
// conv_lanes computes the products of so many neighbouring input channels in one step.
inline int64_t step_channels(int64_t channels_in) {
  return std::clamp<int64_t>(channels_in, 1, 4);
}

// Whether input 1, the weights, is a constant that is packed when it is loaded; others are packed at a call, where shapes are not known.
inline bool has_packed_weights(const LowerContext& node) {
  return node.constant_packed.size() > 1 && node.constant_packed[1];
}

// Elements of the packed weights of one group.
int64_t packed_group(const NodeContext& node, const WeightView& weights);
// The output channels of a group whose weights are packed together: all of them, unless that is more than a dispatch takes. The block of
// channels from `first` on begins where the packed weights of a group of `first` channels would end. `factors`: of the weights.
int64_t block_channels(const NodeContext& node, const WeightView& weights, DType factors);
// Lays out any strided source as the kernels read weights, block by block.
void pack_weights(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, double scale, PackedWeight& packed);
// Lays out constant input `input`, which must be row-major.
void pack_weights(const PackContext& node, size_t input, const WeightView& weights, double scale, PackedWeight& packed);
// Elements of weights in the order of pack_fragments().
inline int64_t fragment_elements(const WeightView& weights) {
  return round_up(weights.channels_out, 8) * round_up(weights.channels_in, 32) * weights.taps;
}
inline constexpr uint32_t kHalvesBits = 32;  // of an element that is a sum of two halves
// The columns, in whole eights, whose packed fragments and whose source of so many bits an element a kernel can bind at once.
int64_t block_of_fragments(const NodeContext& node, const WeightView& weights, uint32_t element_bits);
// Lays out a matrix, or the weights of a convolution, in the order in which product_quads and conv_halo give them to the matrix units:
// [columns / 8][depth / 32][taps][32 lanes][8], where lane 4 g + t has the eight steps of the depth from 8 t on of column g; zero past the
// columns and the depth.
void pack_fragments(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, double scale, PackedWeight& packed);
// The weights of a convolution whose kernel has `width` taps in a row, which are columns each: [columns / 8][channels_in / 32][rows of
// taps][32 lanes][8], column tap * channels_out + channel. Few enough that a kernel can bind them.
inline int64_t spread_elements(const WeightView& weights, int64_t width) {
  return round_up(weights.channels_out * width, 8) * round_up(weights.channels_in, 32) * (weights.taps / width);
}
void pack_spread(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, int64_t width, PackedWeight& packed);
// The same as pack_fragments() of two halves for each element times 2^-exponent: [columns / 8][depth / 32][high, low][32 lanes][8].
void pack_halves(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, int exponent, PackedWeight& packed);
// Lays out a matrix whose rows are the input channels of `rows` as rows of whole eights.
void pack_rows(const NodeContext& node, const TensorDesc& source_desc, const WeightView& rows, double scale, PackedWeight& packed);

// Lays out any source for kernels with a layout of their own, the same on every device: [groups][out / 16][taps][in / 4][16][4], zero past
// the channels.
void pack_weight_lanes(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, PackedWeight& packed);
// pack_weights() of 8-bit integers, which it leaves as they are.
void pack_integer_weights(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, PackedWeight& packed);
// Rows of a matrix, `depth` dense elements each, `stride` elements from one to the next.
struct MatrixRows {
  int64_t count, depth, stride;
};

// A kernel, and its step, that brings dense rows of 8-bit or 16-bit elements into whole pieces of 16 bytes; `pad`: the word that fills up
// the last.
std::shared_ptr<const KernelVariant> row_pieces_kernel(const NodeContext& node, DType dtype, std::string_view pad);
Step row_pieces_step(const std::shared_ptr<const KernelVariant>& kernel, DType dtype, const Operand& x, const Operand& y,
                     const MatrixRows& rows);

}  // namespace pumice

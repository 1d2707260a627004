// One dispatch of the contraction kernels: what Conv, ConvTranspose, Gemm and MatMul all become.
#pragma once

#include <algorithm>
#include <optional>

#include "operators/means/planes.h"
#include "operators/row/lowering.h"

namespace pumice {

// Weights as [groups][out][in][taps], with strides in elements of the source.
struct WeightView {
  int64_t groups, channels_out, channels_in, taps;
  int64_t stride_group, stride_out, stride_in, stride_tap;
};

// int32 numbers that are taken from 8-bit integers before these are multiplied. Where x is a matrix there is one for each row, where w is
// one for each column; `first` and the strides find them. A convolution has one of x, and of w one for each channel of all groups, from
// `first` on.
struct ZeroPoints {
  Operand operand;
  int64_t first = 0, stride = 0, stride_group = 0;
};

// Of a contraction of 8-bit integers, whose sums are int32. No zero points: zero.
struct IntegerTerms {
  DType x, w;
  std::optional<ZeroPoints> x_zero = {}, w_zero = {};
};

// Everything that one dispatch of the contraction kernel is told.
struct Contraction {
  Planes x, y;
  WeightView weights;
  int64_t out_h, out_w;  // of this dispatch
  int64_t in_step_h = 1, in_step_w = 1, tap_step_h = 1, tap_step_w = 1, base_h = 0, base_w = 0;
  int64_t taps_h = 1, taps_w = 1, tap_first = 0, tap_row = 0, tap_column = 0;
  int64_t x_stride_group = 0, y_stride_group = 0, w_stride_group = 0;
  int64_t x_first = 0, w_first = 0, y_first = 0;  // elements where this dispatch begins
  bool matrix = false;                            // a matrix product: no taps
  std::optional<IntegerTerms> integers = {};      // none: of floats
  bool by_columns = false;                        // of a matrix product: w lies by columns, and x in whole eights
  bool padded = false;                            // x has zeros after its last channel, up to the next eight
};

// What is added: a packed number (of integers: int32) for each channel, from number `first` on, or a matrix.
struct ContractionBias {
  enum class Kind { none, channels, matrix } kind = Kind::none;
  Operand operand;
  int64_t stride_row = 0, stride_column = 0;
  double scale = 1;
  int64_t first = 0;
};

inline constexpr int64_t kLaneChannels = 16;  // of conv_lanes: output channels of a subgroup
// Products of so many neighbouring input channels are one step of conv_lanes.
inline int64_t step_channels(int64_t channels_in) {
  return std::clamp<int64_t>(channels_in, 1, 4);
}

// Elements of the packed weights of one group.
int64_t packed_group(const NodeContext& node, const WeightView& weights);
// The output channels of a group whose weights are packed together: all of them, unless that is more than a dispatch takes. The block of
// channels from `first` on begins where the packed weights of a group of `first` channels would end. `factors`: of the weights.
int64_t block_channels(const NodeContext& node, const WeightView& weights, DType factors);
// Lays out any strided source as the kernels read weights, block by block.
void pack_weights(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, double scale, PackedWeight& packed);
// Likewise constant input `input`, which must be row-major.
void pack_weights(const PackContext& node, size_t input, const WeightView& weights, double scale, PackedWeight& packed);
// Lays out a matrix whose rows are the input channels of `rows` as rows of whole eights.
void pack_rows(const NodeContext& node, const TensorDesc& source_desc, const WeightView& rows, double scale, PackedWeight& packed);

// Any source for kernels of their own, whatever the device: [groups][out / 16][taps][in / 4][16][4], zero past the channels.
void pack_weight_lanes(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, PackedWeight& packed);
// pack_weights() of 8-bit integers, which it leaves as they are.
void pack_integer_weights(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, PackedWeight& packed);
// Input `input` of 8-bit or 32-bit integers as `count` of int32; a single one is repeated.
void pack_integers(const PackContext& node, size_t input, int64_t count, PackedWeight& packed);

// Rows of elements of 8 or 16 bits that lie together as rows of whole pieces of 16 bytes; `pad`: the word that fills up the last.
std::shared_ptr<const KernelVariant> row_pieces_kernel(const NodeContext& node, DType dtype, std::string_view pad);
Step row_pieces_step(const std::shared_ptr<const KernelVariant>& kernel, DType dtype, const Operand& x, const Operand& y, int64_t rows,
                     int64_t depth, int64_t x_row);

// Rows of a matrix as the pixels of one image.
Planes matrix_planes(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride);
Contraction matrix_product(const Planes& a, const WeightView& b, const Planes& y);
// The rows of input 0 as a product reads them best; `c` is told how they lie.
Operand matrix_rows(LowerContext& node, Contraction& c);

// The macros that tell the kernels of IntegerTerms; what they bind, and where the products of matrices find a row's and a column's.
Macros integer_macros(const IntegerTerms& integers);
void bind_zero_points(StepBuilder& step, const IntegerTerms& integers);
StepBuilder& set_zero_points(StepBuilder& step, const IntegerTerms& integers);
// The zero points at input `input`, packed as pack_integers() does; none where it is absent or known to be zero.
std::optional<ZeroPoints> zero_points(LowerContext& node, size_t input);

// The optional input 2, packed.
ContractionBias bias_of(LowerContext& node);
// In several dispatches where the device takes no grid, or binds no range, that one would need.
void add_contraction(LowerContext& node, const Contraction& c, const Operand& x, const Operand& w, const ContractionBias& bias,
                     const Operand& y);

}  // namespace pumice

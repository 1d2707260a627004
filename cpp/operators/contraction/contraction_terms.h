// The terms of a dispatch of the contraction kernels.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/dtype.h"
#include "operators/means/planes.h"
#include "operators/row/lowering.h"
#include "operators/row/operator_row.h"

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

// The integers of a contraction of 8-bit integers, whose sums are int32. Where there are no zero points they are zero.
struct IntegerTerms {
  DType x, w;
  std::optional<ZeroPoints> x_zero = {}, w_zero = {};
};

// How the weights of a contraction lie: in the blocks that pack_weights() makes; those of a matrix product as columns, one after the other,
// in the order of pack_fragments(), likewise as sums of two halves, or as the strides of its WeightView say.
enum class WeightOrder : uint8_t { blocks, columns, fragments, halves, strides };

// Whether the kernels that read weights in this order read x in whole eights.
inline bool reads_eights(WeightOrder order) {
  return order == WeightOrder::columns || order == WeightOrder::fragments || order == WeightOrder::halves;
}

// Everything that one dispatch of the contraction kernel needs to know.
struct Contraction {
  Planes x, y;
  WeightView weights;
  int64_t out_h, out_w;  // the output of this dispatch
  int64_t in_step_h = 1, in_step_w = 1, tap_step_h = 1, tap_step_w = 1, base_h = 0, base_w = 0;
  int64_t taps_h = 1, taps_w = 1, tap_first = 0, tap_row = 0, tap_column = 0;
  int64_t x_stride_group = 0, y_stride_group = 0, w_stride_group = 0;
  int64_t x_first = 0, w_first = 0, y_first = 0;  // elements where this dispatch begins
  bool matrix = false;                            // a matrix product: no taps
  std::optional<IntegerTerms> integers = {};      // none: of floats
  WeightOrder order = WeightOrder::blocks;        // of the weights
  std::vector<WeightOrder> orders = {};           // that a constant matrix can have, the engine's own choice first; empty: `order` alone
  bool padded = false;                            // x has zeros after its last channel, up to the next eight
  bool split = false;                             // x has rows of sums of two halves, as split_rows.comp makes them
  int64_t fragments = 0;  // the element of the weights at which they lie once more, in the order of pack_fragments(); 0: they do not
  int64_t spread = 0;     // likewise in the order of pack_spread()
  // The windows of a convolution that pools: y has the largest element of each of them. Only conv_patch makes such a result.
  PoolWindow pool = {};
  // Elements of x and y where these are floats; those of the weights are the node's own. See float_arrays().
  DType x_dtype = DType::float32, y_dtype = DType::float32;
};

inline bool pools(const Contraction& c) {
  return c.pool != PoolWindow{};
}

// A number that is added to each result: a packed one (of integers: int32) for each channel, from number `first` on, or one of a matrix.
struct ContractionBias {
  enum class Kind { none, channels, matrix } kind = Kind::none;
  Operand operand;
  int64_t stride_row = 0, stride_column = 0;
  double scale = 1;
  int64_t first = 0;
};

}  // namespace pumice

// Parameters of a GEMM or convolution dispatch.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/dtype.h"
#include "operators/common/nchw_view.h"
#include "operators/table/lowering.h"
#include "operators/table/operator_row.h"

namespace pumice {

// Weights viewed as [groups][out][in][taps], with element strides of the source.
struct WeightView {
  int64_t groups, channels_out, channels_in, taps;
  int64_t stride_group, stride_out, stride_in, stride_tap;
};

// int32 zero points, which are subtracted from 8-bit integers. A GEMM has one zero point per row of x and one per column of w, starting
// at `first` with the given strides. A convolution has one zero point for x, and one per output channel for w, starting at `first`.
struct ZeroPoints {
  Operand operand;
  int64_t first = 0, stride = 0, stride_group = 0;
};

// Parameters of an int8 GEMM or convolution with int32 accumulation. Absent zero points are zero.
struct Int8Params {
  DType x, w;
  std::optional<ZeroPoints> x_zero = {}, w_zero = {};
};

// Memory order of the weights: `blocks` is the layout of pack_weights(). Matrices may also be column-major, in fragments from
// pack_fragments(), in fragments of elements that are split into two fp16 values, or unpacked with the strides of their WeightView.
enum class WeightOrder : uint8_t { blocks, col_major, fragments, split_fp16, strides };

// Whether the kernels for this weight order load x as vec8s.
inline bool reads_vec8(WeightOrder order) {
  return order == WeightOrder::col_major || order == WeightOrder::fragments || order == WeightOrder::split_fp16;
}

// Adjacent 2D pooling windows: no overlap, padding or skipped elements.
struct PoolWindow {
  int64_t rows = 1, columns = 1;

  bool operator==(const PoolWindow&) const = default;
};

// Parameters of one dispatch of a GEMM or convolution kernel.
struct ConvGemmParams {
  NchwView x, y;
  WeightView weights;
  int64_t out_h, out_w;  // output size of this dispatch
  int64_t in_step_h = 1, in_step_w = 1, tap_step_h = 1, tap_step_w = 1, base_h = 0, base_w = 0;
  int64_t taps_h = 1, taps_w = 1, tap_first = 0, tap_row = 0, tap_column = 0;
  int64_t x_stride_group = 0, y_stride_group = 0, w_stride_group = 0;
  int64_t x_first = 0, w_first = 0, y_first = 0;  // index of the first element of this dispatch in each tensor
  bool is_gemm = false;                           // a GEMM, which has no filter taps
  std::optional<Int8Params> integers = {};        // set for int8
  WeightOrder order = WeightOrder::blocks;        // memory order of the weights
  std::vector<WeightOrder> orders = {};           // orders in which a constant matrix can be packed, preferred first; empty: only `order`
  bool padded = false;                            // the channels of x are zero-padded to a multiple of 8
  bool x_is_split = false;                        // the elements of x are split into two fp16 values by split_fp16_rows.comp
  int64_t fragments = 0;                          // offset of a second copy of the weights, packed by pack_fragments(); 0: none
  int64_t folded_taps = 0;                        // offset of a copy of the weights whose horizontal taps are folded into N; 0: none
  // Window of a max pooling that is fused into the convolution: y contains the pooled results. Only conv_patch supports this.
  PoolWindow pool = {};
  // Float dtypes of x and y; the weights have the node's float dtype. See choose_float_array_types().
  DType x_dtype = DType::float32, y_dtype = DType::float32;
};

inline bool has_pool(const ConvGemmParams& c) {
  return c.pool != PoolWindow{};
}

// The bias of a GEMM or convolution: one value per channel (int32 for integers), from element `first`, or a matrix.
struct ConvGemmBias {
  enum class BiasKind { none, channels, matrix } kind = BiasKind::none;
  Operand operand;
  int64_t stride_row = 0, stride_column = 0;
  double scale = 1;
  int64_t first = 0;
};

}  // namespace pumice

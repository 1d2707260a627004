// Int8 GEMM on cooperative matrices: see gemm_int8.comp.
#pragma once

#include "operators/conv_gemm/conv_gemm_dispatch.h"

namespace pumice {

// Whether a GEMM with right-hand side `b` [K, N] runs on int8 cooperative matrices (16x16x32), regardless of the left-hand side. Packing
// and lowering both call this, because they must agree.
bool supports_int8_coopmat(const NodeContext& node, const TensorDesc& b);

// Packs the right-hand side by columns, padded to multiples of 16, followed by the column sums.
void pack_int8_columns(const NodeContext& node, const TensorDesc& b, PackedWeight& packed);

// Left-hand side [rows, K] of several GEMMs: rows padded to multiples of 16 bytes and, if needed, row sums.
struct PackedInt8Rows {
  Operand rows, sums;
  bool copied = false;
};
PackedInt8Rows pack_int8_rows(LowerContext& node, const TensorDesc& a, int64_t rows, const Int8Params& params);

struct RowRange {
  int64_t first, count;
};
// Right-hand side [K, N] and its packed columns.
struct PackedInt8Columns {
  const TensorDesc& desc;
  Operand packed;
};

// Adds the GEMM of a range of rows and the packed columns; y is int32 [all rows, N].
void add_int8_gemm(LowerContext& node, const PackedInt8Rows& left, const RowRange& range, const PackedInt8Columns& right,
                   const Int8Params& params, const Operand& y);

}  // namespace pumice

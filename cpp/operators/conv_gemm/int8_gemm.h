// Int8 GEMM on cooperative matrices: see gemm_int8.comp.
#pragma once

#include "operators/conv_gemm/conv_gemm_dispatch.h"

namespace pumice {

// Whether a GEMM with right-hand side [K, N] runs on int8 cooperative matrices (16x16x32), regardless of the left-hand side. Used by
// packing and lowering, which must agree.
bool has_integer_matrices(const NodeContext& node, const TensorDesc& b);

// Packs the right-hand side by columns, padded to multiples of 16, followed by the column sums.
void pack_integer_columns(const NodeContext& node, const TensorDesc& b, PackedWeight& packed);

// Packs the left-hand side [rows, K] of several products in rows padded to multiples of 16, with row sums if needed.
struct IntegerRows {
  Operand rows, sums;
  bool copied = false;
};
IntegerRows transpose_int8(LowerContext& node, const TensorDesc& a, int64_t rows, const IntegerTerms& terms);

struct RowRange {
  int64_t first, count;
};
// Right-hand side: [K, N], and its packed columns.
struct IntegerColumns {
  const TensorDesc& desc;
  Operand packed;
};

// Adds a product of a range of rows with the packed columns; y is int32 [all rows, N].
void add_integer_product(LowerContext& node, const IntegerRows& left, const RowRange& range, const IntegerColumns& right,
                         const IntegerTerms& terms, const Operand& y);

}  // namespace pumice

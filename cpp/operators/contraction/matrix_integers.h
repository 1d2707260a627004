// Products of matrices of 8-bit integers on matrix units: see matrix_integers.comp.
#pragma once

#include "operators/contraction/contraction.h"

namespace pumice {

// Whether the product with such a right-hand side [depth, columns] runs on matrix units: signed bytes, 16 by 16 by 32. Packing and lowering
// decide alike, whatever is on the left.
bool has_integer_matrices(const NodeContext& node, const TensorDesc& b);

// Packs the right-hand side by columns, of whole sixteens, then each column's sum.
void pack_integer_columns(const NodeContext& node, const TensorDesc& b, PackedWeight& packed);

// Packs the left-hand side of several products, [rows, depth] row-major, in rows of whole sixteens, and the sums of the rows where they are
// needed.
struct IntegerRows {
  Operand rows, sums;
  bool copied = false;
};
IntegerRows integer_rows(LowerContext& node, const TensorDesc& a, int64_t rows, const IntegerTerms& terms);

struct RowRange {
  int64_t first, count;
};
// The right-hand side of products: [depth, columns], and its columns as they are packed.
struct IntegerColumns {
  const TensorDesc& desc;
  Operand packed;
};

// One product of some rows with the packed columns; y is [all rows, columns] of int32.
void add_integer_product(LowerContext& node, const IntegerRows& left, const RowRange& range, const IntegerColumns& right,
                         const IntegerTerms& terms, const Operand& y);

}  // namespace pumice

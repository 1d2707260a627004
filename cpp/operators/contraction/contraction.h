// One dispatch of the contraction kernels: what Conv, ConvTranspose, Gemm and MatMul all become.
#pragma once

#include <optional>

#include "operators/contraction/contraction_pack.h"
#include "operators/contraction/contraction_terms.h"

namespace pumice {

// Rows of a matrix as the pixels of one image.
Planes matrix_planes(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride);
Contraction matrix_product(const Planes& a, const WeightView& b, const Planes& y);
// The rows of input 0 as a product reads them best; `c` is told how they lie.
Operand matrix_rows(LowerContext& node, Contraction& c);

// Input `input` of 8-bit or 32-bit integers as `count` of int32; a single one is repeated.
void pack_integers(const PackContext& node, size_t input, int64_t count, PackedWeight& packed);

// The macros that tell the kernels of IntegerTerms; what they bind, and where the products of matrices find a row's and a column's.
Macros integer_macros(const IntegerTerms& integers);
void bind_zero_points(StepBuilder& step, const IntegerTerms& integers);
StepBuilder& set_zero_points(StepBuilder& step, const IntegerTerms& integers);
// The zero points at input `input`, packed as pack_integers() does; none where it is absent or known to be zero.
std::optional<ZeroPoints> zero_points(LowerContext& node, size_t input);

// The bias, the optional input 2, packed.
ContractionBias bias_of(LowerContext& node);
// Adds the contraction, in several dispatches where the device takes no grid, or binds no range, that one would need.
void add_contraction(LowerContext& node, const Contraction& c, const Operand& x, const Operand& w, const ContractionBias& bias,
                     const Operand& y);
// Adds a convolution that pools as one dispatch; its node has "pool_epilogue". Adds nothing, and returns false, where one dispatch cannot
// do it, or two are quicker.
bool add_pooled_contraction(LowerContext& node, const Contraction& c, const Operand& x, const Operand& w, const ContractionBias& bias,
                            const Operand& y);

}  // namespace pumice

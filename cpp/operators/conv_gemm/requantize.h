// Requantises the int32 sums of QLinearMatMul and QLinearConv to 8 bits.
#pragma once

#include <optional>

#include "operators/table/lowering.h"

namespace pumice {

// Returns the strides of scales or zero points over matrices [batch.., M, N]. They are scalars, or one per row ([M] or [batch.., M, 1]),
// or, with `columns`, one per column ([N] or [batch.., 1, N]). Returns nullopt for other shapes.
std::optional<Strides> compute_quant_param_strides(const TensorDesc& quantities, const Shape& matrices, bool columns);

// Packs inputs 1, 4 and 6 (the scales of a, b and y) as float32, and input 7 (the zero point of y) as int32.
bool pack_requantize_params(const PackContext& node, size_t input, PackedWeight& packed);
// Computes output 0 from row-major int32 sums of this shape. `a`, `b` and `y` are the strides of the scales; the zero point of y has the
// same strides as its scale.
void add_requantize(LowerContext& node, const Operand& sums, const Shape& shape, const Strides& a, const Strides& b, const Strides& y);

}  // namespace pumice

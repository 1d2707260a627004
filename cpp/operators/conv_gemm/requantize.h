// Requantises the int32 sums of QLinearMatMul and QLinearConv to 8 bits.
#pragma once

#include <optional>

#include "operators/table/lowering.h"

namespace pumice {

// Strides over matrices [batch.., M, N] for scales or zero points: scalar, per row ([M] or [batch.., M, 1]), or per column with `columns`
// ([N] or [batch.., 1, N]). Returns nullopt for other shapes.
std::optional<Strides> compute_quant_param_strides(const TensorDesc& quantities, const Shape& matrices, bool columns);

// Packs inputs 1, 4 and 6 (scales of a, b and y) as float32, and 7 (zero point of y) as int32.
bool pack_requantize_params(const PackContext& node, size_t input, PackedWeight& packed);
// Computes output 0 from row-major sums of that shape. The three strides belong to the scales; the zero point of y has the strides of y's
// scale.
void add_requantize(LowerContext& node, const Operand& sums, const Shape& shape, const Strides& a, const Strides& b, const Strides& y);

}  // namespace pumice

// int32 sums of products of quantised numbers, brought back to 8 bits: what QLinearMatMul and QLinearConv do after their products.
#pragma once

#include <optional>

#include "operators/row/lowering.h"

namespace pumice {

// Strides over matrices [batch.., rows, columns] of scales or zero points: one number, one for each row ([rows] or [batch.., rows, 1]) or,
// `columns`, one for each column ([columns] or [batch.., 1, columns]). None for any other shape.
std::optional<Strides> quantity_strides(const TensorDesc& quantities, const Shape& matrices, bool columns);

// Packs inputs 1, 4 and 6 (the scales of a, b and y) as float32, and 7 (the zero point of y) as int32.
bool pack_requantized(const PackContext& node, size_t input, PackedWeight& packed);
// Makes output 0 from row-major sums of that shape. The strides are those of the three scales over its axes; y's are also those of its zero
// point.
void add_requantize(LowerContext& node, const Operand& sums, const Shape& shape, const Strides& a, const Strides& b, const Strides& y);

}  // namespace pumice

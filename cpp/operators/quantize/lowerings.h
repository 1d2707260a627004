// This header declares the lowerings, packings and host evaluations that rows of quantisation name.
#pragma once

#include "operators/row/lowering.h"

namespace pumice {

enum QuantizeForm : uint8_t { kDequantizes, kQuantizes };  // OperatorRow::form of the rows of lower_quantize()

void lower_quantize(LowerContext& node);
void lower_dynamic_quantize(LowerContext& node);
bool pack_quantize(const PackContext& node, size_t input, PackedWeight& packed);

}  // namespace pumice

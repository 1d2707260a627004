// Lowerings and weight packing of the quantisation operators.
#pragma once

#include "operators/table/lowering.h"

namespace pumice {

enum QuantizeMode : uint8_t { kDequantize, kQuantize };  // OperatorRow::form for lower_quantize()

void lower_quantize(LowerContext& node);
void lower_dynamic_quantize(LowerContext& node);
bool pack_quantize(const PackContext& node, size_t input, PackedWeight& packed);

}  // namespace pumice

// What the rows of quantisation name: their lowerings, packings and values on the host.
#pragma once

#include "operators/row/lowering.h"

namespace pumice {

void lower_quantize(LowerContext& node);
void lower_dynamic_quantize(LowerContext& node);
bool pack_quantize(const PackContext& node, size_t input, PackedWeight& packed);

}  // namespace pumice

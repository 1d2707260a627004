// Lowerings and packing functions of recurrent layers.
#pragma once

#include "operators/table/lowering.h"

namespace pumice {

void lower_recurrent(LowerContext& node);
bool pack_recurrent(const PackContext& node, size_t input, PackedWeight& packed);

}  // namespace pumice

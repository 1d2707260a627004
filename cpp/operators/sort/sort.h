// Device-side sorting.
#pragma once

#include "operators/table/lowering.h"

namespace pumice {

// Adds a stable argsort: returns uint32 indices 0 .. count - 1 ordered by ascending uint32 `keys`.
Operand add_argsort(LowerContext& node, const Operand& keys, int64_t count);

}  // namespace pumice

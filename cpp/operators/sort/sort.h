// Orders of numbers that the device alone knows.
#pragma once

#include "operators/row/lowering.h"

namespace pumice {

// Adds steps that make the numbers 0 .. count - 1 in the order of the uint32 `keys`, the least first, equal ones by number: as many uint32.
Operand add_ascending_order(LowerContext& node, const Operand& keys, int64_t count);

}  // namespace pumice

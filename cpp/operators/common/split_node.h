// Splits nodes whose tensors exceed the maximum binding size.
#pragma once

#include "operators/table/lowering.h"

namespace pumice {

// Lowers the node with `lower`, which is OperatorRow::lower or lower_with_residual(). If a step accesses more of a tensor than the device
// can bind (maxStorageBufferRange), the node is split along an axis from find_split_axes() into chunks that fit. If no split suffices, the
// chunks are as small as possible, and binding fails later.
void lower_with_splits(LowerContext& node, void (*lower)(LowerContext&));

// Calls lower_with_splits() with OperatorRow::lower.
void lower_operator_row(LowerContext& node);

}  // namespace pumice

// Lowers in parts what has larger tensors than a kernel binds.
#pragma once

#include "operators/row/lowering.h"

namespace pumice {

// Lowers the node by `lower`: its row's own function, or lower_residual(). Where a step would read or write more of a tensor than the
// device binds (maxStorageBufferRange), the node is lowered again in parts, each along an axis of cut_axes() and small enough, or in the
// end only as small as can be: then the steps are left to be refused where they are bound.
void lower_in_parts(LowerContext& node, void (*lower)(LowerContext&));

// lower_in_parts() by the row's own function.
void lower_row(LowerContext& node);

}  // namespace pumice

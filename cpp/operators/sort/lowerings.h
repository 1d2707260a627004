// The functions that rows of sorting name.
#pragma once

#include "operators/host/host_node.h"
#include "operators/row/lowering.h"

namespace pumice {

void lower_topk(LowerContext& node);

// The host's values.
HostResults evaluate_topk(const HostNode& node);

}  // namespace pumice

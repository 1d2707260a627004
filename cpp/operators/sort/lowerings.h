// What the rows of sorting name: their lowerings, packings and values on the host.
#pragma once

#include "operators/host/host_node.h"
#include "operators/row/lowering.h"

namespace pumice {

void lower_topk(LowerContext& node);

// These compute outputs on the host.
HostResults evaluate_topk(const HostNode& node);

}  // namespace pumice

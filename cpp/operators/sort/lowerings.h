// This header declares the lowerings, packings and host evaluations that rows of sorting name.
#pragma once

#include "operators/host/host_node.h"
#include "operators/row/lowering.h"

namespace pumice {

void lower_topk(LowerContext& node);

// These compute outputs on the host.
HostResults evaluate_topk(const HostNode& node);

}  // namespace pumice

// Lowerings and host evaluations of sorting operators.
#pragma once

#include "operators/host/host_node.h"
#include "operators/table/lowering.h"

namespace pumice {

void lower_topk(LowerContext& node);

// Evaluates TopK on the host.
HostResults evaluate_topk(const HostNode& node);

}  // namespace pumice

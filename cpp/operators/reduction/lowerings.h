// Lowerings and host evaluations of reductions and running sums.
#pragma once

#include "operators/host/host_node.h"
#include "operators/table/lowering.h"

namespace pumice {

void lower_reduce(LowerContext& node);
void lower_arg_reduce(LowerContext& node);
void lower_scan(LowerContext& node);
void lower_count_non_zero(LowerContext& node);
void lower_non_zero(LowerContext& node);
void lower_device_compress(LowerContext& node);

// Evaluate reductions and running sums on the host.
HostResults evaluate_reduce(const HostNode& node);
HostResults evaluate_scan(const HostNode& node);

}  // namespace pumice

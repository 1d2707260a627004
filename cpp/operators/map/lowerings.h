// This header declares the lowerings, packings and host evaluations that rows of elementwise operators name.
#pragma once

#include "operators/host/host_node.h"
#include "operators/row/lowering.h"

namespace pumice {

void lower_map(LowerContext& node);
void lower_cast(LowerContext& node);

// Declares what all rows of one scalar expression share, but for the expression and its value on the host.
void declare_elementwise(OperatorRow& row);

// These compute outputs on the host.
HostResults evaluate_map(const HostNode& node);
HostResults evaluate_cast(const HostNode& node);

}  // namespace pumice

// Lowerings and host evaluations of elementwise operators.
#pragma once

#include "operators/host/host_node.h"
#include "operators/table/lowering.h"

namespace pumice {

void lower_elementwise(LowerContext& node);
void lower_cast(LowerContext& node);

// Sets the properties that all operators with a scalar expression have, except the expression and the host evaluation.
void set_elementwise_properties(OperatorRow& row);

// Evaluate elementwise operators on the host.
HostResults evaluate_elementwise(const HostNode& node);
HostResults evaluate_cast(const HostNode& node);

}  // namespace pumice

// Floating-point operations of a node, for profiles.
#pragma once

#include <cstdint>

namespace pumice {

class LowerContext;

// The number of floating-point operations of a node: a multiplication and an addition for each term of each result of a product or a
// convolution; one operation for each element that a map makes, and that a reduction, a window or a scan reads. Nodes that only move
// elements, and those without a rule here, have 0.
uint64_t node_flop(const LowerContext& node);

}  // namespace pumice

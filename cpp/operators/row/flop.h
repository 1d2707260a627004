// Floating-point operations of a node, for profiles.
#pragma once

#include <cstdint>

namespace pumice {

class LowerContext;

// Of products and convolutions a multiplication and an addition for each term of each result; one operation for each element that a map
// makes, and that a reduction, a window or a scan reads. 0 for what only moves, and for what has no rule here.
uint64_t node_flop(const LowerContext& node);

}  // namespace pumice

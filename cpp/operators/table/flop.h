// Floating-point operation counts of nodes, for profiles.
#pragma once

#include <algorithm>
#include <cstdint>

#include "operators/table/lowering.h"

namespace pumice {

// Returns the FLOP count of a node from OperatorRow::flop, with 2 per multiply-add. Operators without that function count one per output
// element (map) or per input element (reduction, window, scan), and 0 if they only move elements.
uint64_t count_node_flops(const LowerContext& node);

// Functions for OperatorRow::flop that several operators share.

// Counts a GEMM with left operand input 0, which is transposed if "transA" is set.
uint64_t count_gemm_flops(const LowerContext& node);
// Counts both GEMMs of attention, Q*K^T and P*V. Input 0 contains the queries.
uint64_t count_attention_flops(const LowerContext& node, int64_t keys);

// Counts a convolution with filters in input `kFilters`. They are applied at each output position, or at each input position if
// `transposed`.
template <size_t kFilters = 1, bool transposed = false>
uint64_t count_convolution_flops(const LowerContext& node) {
  const TensorDesc &filters = node.input(kFilters), &positions = transposed ? node.input(0) : node.output(0);
  const int64_t first = std::max<int64_t>(filters.shape.front(), 1);
  return 2 * static_cast<uint64_t>(positions.elements()) * static_cast<uint64_t>(filters.elements() / first);
}

}  // namespace pumice

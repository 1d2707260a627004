// Floating-point operation counts of nodes, for profiles.
#pragma once

#include <algorithm>
#include <cstdint>

#include "operators/table/lowering.h"

namespace pumice {

// Returns the floating-point operations of a node, as counted by its operator's `flop`: 2 per multiply-add of a GEMM or convolution.
// Operators without that function count one operation per output element (map) or per input element (reduction, window, scan). Nodes that
// only move elements count 0.
uint64_t node_flop(const LowerContext& node);

// `flop` functions shared by several operators.

// GEMM of the rows of input 0 (its columns if "transA" is set) and a matrix.
uint64_t gemm_flop(const LowerContext& node);
// Both GEMMs of attention, Q*K^T and P*V, with input 0 as the queries and the given number of keys.
uint64_t attention_flop(const LowerContext& node, int64_t keys);

// A convolution whose filters are input `kFilters`, applied at each output position, or at each input position if `transposed`.
template <size_t kFilters = 1, bool transposed = false>
uint64_t convolution_flop(const LowerContext& node) {
  const TensorDesc &filters = node.input(kFilters), &positions = transposed ? node.input(0) : node.output(0);
  const int64_t first = std::max<int64_t>(filters.shape.front(), 1);
  return 2 * static_cast<uint64_t>(positions.elements()) * static_cast<uint64_t>(filters.elements() / first);
}

}  // namespace pumice

// Gathers elements with indices that the host knows, along some axes.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "operators/table/lowering.h"

namespace pumice {

// For each axis, the indices into x, with -1 for an element outside; nullopt for an unchanged axis.
using IndexTables = std::vector<std::optional<std::vector<int32_t>>>;

// Computes output 0, viewed as `y`, from input 0, viewed as `x`. Both are dense. `outside`: the value for index -1.
void add_table_gather(LowerContext& node, const Shape& x, const Shape& y, const IndexTables& tables, const HostTensor& outside);

// Adds an array of host values that the device reads.
template <typename T>
Operand add_host_array(LowerContext& node, const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return node.add_host_block(std::move(bytes));
}

}  // namespace pumice

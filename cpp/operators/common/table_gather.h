// Gathers elements along some axes, with index tables that the host computes.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "operators/table/lowering.h"

namespace pumice {

// One table per axis: the index in x for each index in y; -1: outside of x. nullopt: the axis is unchanged.
using IndexTables = std::vector<std::optional<std::vector<int32_t>>>;

// Computes output 0, viewed with shape `y`, from input 0, viewed with shape `x`. Both are contiguous. `outside`: the value for index -1.
void add_table_gather(LowerContext& node, const Shape& x, const Shape& y, const IndexTables& tables, const HostTensor& outside);

// Adds an array of host values for the device to read. Returns its operand.
template <typename T>
Operand add_host_array(LowerContext& node, const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return node.add_host_block(std::move(bytes));
}

}  // namespace pumice

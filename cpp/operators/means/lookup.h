// Elements found by indices that the host knows: tables for some axes, the others as they are.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "operators/row/lowering.h"

namespace pumice {

// The indices into x for each axis, -1 for an element outside of it; none for an axis that stays as it is.
using AxisTables = std::vector<std::optional<std::vector<int32_t>>>;

// Makes output 0, seen as `y`, of input 0, seen as `x`: both dense. `outside` holds the element that stands for -1.
void add_lookup(LowerContext& node, const Shape& x, const Shape& y, const AxisTables& tables, const HostTensor& outside);

// Values as bytes that the device reads.
template <typename T>
Operand block_of(LowerContext& node, const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return node.host_block(std::move(bytes));
}

}  // namespace pumice

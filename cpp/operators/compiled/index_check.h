// Range check of indices whose values only the device knows.
#pragma once

#include <string>

#include "operators/table/operator_table.h"

namespace pumice {

// Operator row of a check node. It has the inputs and attributes of the node to check, and the attribute kCheckedOperator, the name of that
// node's operator. Its output is int32[4]: the bitwise complement of the position of the first out-of-range index (0 if none), the number
// of such indices, and the low and high word of the first (the float32 bits if it is a float).
const OperatorRow& index_check_row();
inline constexpr std::string_view kCheckedOperator = "checked";

// Decoded output of a check node.
struct IndexCheckResult {
  uint64_t count = 0;
  int64_t position = 0,
          index = 0;  // position and value of the first out-of-range index; a float is truncated, NaN gives the smallest int64
  std::string text;   // the index as text
};
// `is_real`: the indices are floats.
IndexCheckResult decode_index_check(const std::byte* result_bytes, bool is_real);

}  // namespace pumice

// Bounds check of indices whose values are known only on the device.
#pragma once

#include <string>

#include "operators/table/operator_table.h"

namespace pumice {

// Operator row of a check node. The node has the inputs and attributes of the node that it checks, and the attribute kCheckedOperator with
// that node's operator. Its output is int32[4]: the bitwise complement of the position of the first out-of-range index (0 if there is
// none), the number of out-of-range indices, and the low and high word of the first one (its float32 bits for float indices).
const OperatorRow& get_index_check_row();
inline constexpr std::string_view kCheckedOperator = "checked";

// Decoded output of a check node.
struct IndexCheckResult {
  uint64_t count = 0;
  int64_t position = 0,
          index = 0;  // position and value of the first out-of-range index; floats are truncated, and NaN becomes the smallest int64
  std::string text;   // the index as text
};
// Decodes the output of a check node. `is_real`: the indices are floats.
IndexCheckResult decode_index_check(const std::byte* result_bytes, bool is_real);

}  // namespace pumice

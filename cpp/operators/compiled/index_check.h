// Indices that only the device knows, checked there: which of them are out of range.
#pragma once

#include <string>

#include "operators/row/operator_table.h"

namespace pumice {

// The row of a node that has the inputs and attributes of a node with indices, and kCheckedOperator, the name of that one's operator. It
// makes int32[4]: minus one less the position of the first of the indices that is out of range (0: none is), how many are, and the
// low and the high word of the first; of a float its bits as float32.
const OperatorRow& index_check_row();
inline constexpr std::string_view kCheckedOperator = "checked";

// The result of such a node.
struct FoundIndices {
  uint64_t count = 0;
  int64_t position = 0, index = 0;  // the first one's place and value; of a float, the nearest integer, and of NaN the least one
  std::string text;                 // the value
};
// `is_real`: the indices are floats.
FoundIndices found_indices(const std::byte* made, bool is_real);

}  // namespace pumice

// Memory locations of the values that a plan stores, for observed runs.
#pragma once

#include "graph/description/graph.h"
#include "operators/compiled/compiled_operator.h"

namespace pumice {

// A value that a kernel of the plan writes to memory.
struct StoredValue {
  ValueId value = kAbsent;
  TensorDesc desc;          // shape, dtype and strides in memory
  PlannedOperand location;  // memory range in the arena or an output
  size_t last_write = 0;    // index of the last step that writes it; later steps may reuse its memory
};

}  // namespace pumice

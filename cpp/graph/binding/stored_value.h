// Where a plan stores its values, for observers.
#pragma once

#include "graph/description/graph.h"
#include "operators/compiled/compiled_operator.h"

namespace pumice {

// A value that a plan's steps store.
struct StoredValue {
  ValueId value = kAbsent;
  TensorDesc desc;        // description with the strides in memory
  PlannedOperand place;   // location in the arena or an output
  size_t last_write = 0;  // last step that writes it; later steps may overwrite it
};

}  // namespace pumice

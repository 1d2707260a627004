// Where the values of a plan are, for those who look at them.
#pragma once

#include "graph/description/graph.h"
#include "operators/compiled/compiled_operator.h"

namespace pumice {

// A value that steps of a plan store.
struct StoredValue {
  ValueId value = kAbsent;
  TensorDesc desc;       // with the strides that it is stored with
  PlannedOperand place;  // in the arena or in an output
  size_t complete = 0;   // the step after which all of it is there; what is there later may be another value
};

}  // namespace pumice

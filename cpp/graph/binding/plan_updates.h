// Inputs of a program that an output may share memory with.
#pragma once

#include <cstddef>

#include "operators/compiled/compiled_operator.h"

namespace pumice {

// Finds inputs, of the first `inputs` of a plan, that are copied whole to an output of the same description, and that nothing else reads.
void find_updates(Plan& plan, size_t inputs);

}  // namespace pumice

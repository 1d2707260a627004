// Finds inputs of a program that may share memory with an output.
#pragma once

#include <cstddef>

#include "operators/compiled/compiled_operator.h"

namespace pumice {

// Finds those of the first `inputs` inputs of a plan that are copied whole to an output of the same description and are not read otherwise.
void find_updates(Plan& plan, size_t inputs);

}  // namespace pumice

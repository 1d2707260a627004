// Finds inputs of a program that may share memory with an output.
#pragma once

#include <cstddef>

#include "operators/compiled/compiled_operator.h"

namespace pumice {

// Finds the inputs, among the first `inputs` of a plan, that are copied whole to an output of the same description and not otherwise read.
void find_in_place_updates(Plan& plan, size_t inputs);

}  // namespace pumice

// Functions that ask, while a node is lowered, what the process or the cache knows of its kernels' spills.
#pragma once

#include <string>
#include <vector>

#include "operators/row/lowering.h"
#include "operators/row/spilled_variants.h"

namespace pumice {

// Adds the variants of a node's steps whose kernels spill, as the process or the cache knows: the driver is asked of none. True where one
// was added.
bool add_known_spills(const std::string& node, const std::vector<Step>& steps, SpilledVariants& spilled);

// Whether a step runs one of these variants.
bool takes_spilled(const std::vector<Step>& steps, const VariantNames* spilled);

}  // namespace pumice

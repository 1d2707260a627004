// Known register spills, used to choose kernel variants during lowering.
#pragma once

#include <string>
#include <vector>

#include "operators/table/lowering.h"
#include "operators/table/spilled_variants.h"

namespace pumice {

// Adds the variants of a node's steps whose kernels spilled registers in this process or according to the cache. Does not query the
// driver. Returns whether any was added.
bool add_known_spills(const std::string& node, const std::vector<Step>& steps, SpilledVariants& spilled);

// Returns whether any step runs a variant in `spilled`.
bool uses_spilled_variant(const std::vector<Step>& steps, const VariantNames* spilled);

}  // namespace pumice

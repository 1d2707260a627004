// Looks up known register spills while a node is lowered.
#pragma once

#include <string>
#include <vector>

#include "operators/table/lowering.h"
#include "operators/table/spilled_variants.h"

namespace pumice {

// Adds the variants of a node's steps whose kernels are known to spill, as recorded in this process or in the cache; does not query the
// driver. Returns whether any was added.
bool add_known_spills(const std::string& node, const std::vector<Step>& steps, SpilledVariants& spilled);

// Returns whether a step runs one of these variants.
bool uses_spilled_variant(const std::vector<Step>& steps, const VariantNames* spilled);

}  // namespace pumice

// Changes that the engine makes to the SPIR-V of a debugged shader.
#pragma once

#include <cstdint>
#include <vector>

#include "shader/debug/debug_table.h"
#include "shader/text/source_set.h"

namespace pumice {

// Gives the bindings of debug_table.h the numbers after the shader's own.
void place_debug_bindings(std::vector<uint32_t>& spirv);

// Adds bounds checks to a module. Every access through an index asks pumice_in_bounds() or pumice_in_range() first: where it would leave
// the array, vector or matrix, a read gives zeros and a write does nothing. Needs the line numbers of instructions. Variables within
// functions, and cooperative matrices loaded and stored whole, are left unchecked.
std::vector<AccessSite> check_bounds(std::vector<uint32_t>& spirv, const SourceSet& sources);

}  // namespace pumice

// SPIR-V rewrites for a debugged shader.
#pragma once

#include <cstdint>
#include <vector>

#include "shader/debug/debug_metadata.h"
#include "shader/source/source_set.h"

namespace pumice {

// Assigns the debug bindings (see debug_metadata.h) binding numbers after the shader's own.
void assign_debug_bindings(std::vector<uint32_t>& spirv);

// Adds bounds checks to a module. Every indexed access first calls pumice_in_bounds() or pumice_in_range(): out of bounds, a read returns
// zeros and a write is dropped. Requires line numbers. Function-local variables and whole-matrix loads and stores of cooperative matrices
// are not checked.
std::vector<AccessSite> add_bounds_checks(std::vector<uint32_t>& spirv, const SourceSet& sources);

}  // namespace pumice

// Changes that the engine makes to the SPIR-V of its users' kernels, so that a wrong kernel harms nobody but itself.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace pumice {

// Sends an index outside of an array to the array's first element, for arrays in shared memory or of an invocation. Software drivers hold
// these in the memory of the process, where an index past the end would crash it or, worse, change its data.
std::vector<uint32_t> with_local_indices_in_bounds(std::span<const uint32_t> spirv);

// Removes the request to unroll from loops whose code would become too large: some drivers obey for hours and gigabytes. `dropped` gets a
// sentence for each such loop.
std::vector<uint32_t> without_large_unrolling(std::span<const uint32_t> spirv, std::vector<std::string>& dropped);

}  // namespace pumice

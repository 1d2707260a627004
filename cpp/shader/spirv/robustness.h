// Rewrites the SPIR-V of user kernels so that a faulty kernel harms only itself.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace pumice {

// Redirects out-of-bounds indices to element 0, for arrays in shared or private memory. Software drivers keep these in process memory,
// where such an access would crash the process or silently corrupt it.
std::vector<uint32_t> clamp_local_indices(std::span<const uint32_t> spirv);

// Removes the Unroll hint from loops whose unrolled code would be too large: some drivers spend hours and gigabytes on them. Appends a
// sentence to `warnings` for each such loop.
std::vector<uint32_t> limit_unrolling(std::span<const uint32_t> spirv, std::vector<std::string>& warnings);

}  // namespace pumice

// What the engine does to the SPIR-V of its users' kernels, so that a wrong one harms nobody but itself.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace pumice {

// The first element takes the place of one outside of an array in shared memory or of an invocation. Drivers of processors hold these in
// the memory of the process, which an index past the end would end or, worse, change.
std::vector<uint32_t> with_local_indices_in_bounds(std::span<const uint32_t> spirv);

// Loops that ask to be unrolled come without the wish where their code would be too much for a driver: some obey for hours and gigabytes.
// `dropped`: a sentence for each of them.
std::vector<uint32_t> without_large_unrolling(std::span<const uint32_t> spirv, std::vector<std::string>& dropped);

}  // namespace pumice

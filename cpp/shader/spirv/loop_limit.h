// Detects loops that a driver silently ends after some number of iterations (Quirk::loop_limit).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace pumice {

// Returns whether an invocation may exceed this many loop iterations in total. A loop has a known count only if a local variable counts
// from one constant to another.
bool may_exceed_iterations(std::span<const uint32_t> spirv, uint64_t iterations);

// Size of the storage buffer of a loop watchdog: a word for the id of a kernel whose loops the driver ended, and a word that is zero.
inline constexpr uint32_t kLoopWatchdogBytes = 8;

// Adds a loop of two iterations after main(). If the limit is used up, the driver ends this loop after its first iteration, and the
// invocation stores `kernel` (nonzero) to the buffer at `binding`.
std::vector<uint32_t> add_loop_watchdog(std::span<const uint32_t> spirv, uint32_t binding, uint32_t kernel);

// Returns the file (as named by the compiler) and line of each loop, if the module has line numbers.
std::vector<std::pair<std::string, uint32_t>> find_loop_lines(std::span<const uint32_t> spirv);

}  // namespace pumice

// Loops of users' kernels on drivers that end loops silently after some number of iterations (Quirk::loop_limit).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace pumice {

// Whether an invocation may run more loop iterations than this in all. Only loops that count a local variable from one constant to another
// have a known number.
bool may_exceed(std::span<const uint32_t> spirv, uint64_t iterations);

// A storage buffer of two words that is bound to such a kernel: the number of a kernel whose loops the driver has ended, and zero.
inline constexpr uint32_t kLoopWatchBytes = 8;

// Adds a loop of two iterations behind main(). A driver whose limit is used up ends it after the first; the invocation then stores
// `kernel`, which is not zero, into the buffer at `binding`.
std::vector<uint32_t> with_loop_watch(std::span<const uint32_t> spirv, uint32_t binding, uint32_t kernel);

// The file, as the compiler names it, and the line of each loop, where the module has line numbers.
std::vector<std::pair<std::string, uint32_t>> loop_lines(std::span<const uint32_t> spirv);

}  // namespace pumice

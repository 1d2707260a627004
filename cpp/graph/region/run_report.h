// Limits of an execution, and reports about it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace pumice {

inline constexpr double kDefaultLoopSeconds = 2, kMaxLoopSeconds = 15;
// Validates a loop timeout: clamps it to kMaxLoopSeconds with a log warning. Throws BindingError for an invalid time.
std::optional<double> checked_loop_timeout(std::optional<double> seconds);

// Time limits of an execution. Loops and executions that exceed them throw TimeoutError; the results of an execution that threw are
// undefined.
struct RunLimits {
  std::optional<double> timeout_seconds;                     // limit for the whole execution, from start()
  std::optional<double> loop_seconds = kDefaultLoopSeconds;  // limit for each WHILE, from each entry
  std::function<void()> interrupted;                         // called about every 50 ms while waiting; may throw
};

// One loop of a program in one execution, summed over all entries.
struct LoopReport {
  std::string node;                                             // qualified by the enclosing graphs: "outer/inner"
  std::string kind;                                             // "host": the host drives it
  uint64_t entries = 0, trips = 0, host_syncs = 0, wasted = 0;  // trips: iterations; wasted: recorded iterations that were skipped
};

struct RunReport {
  uint64_t submissions = 0, dispatches = 0, host_syncs = 0;  // host_syncs: waits by the host to decide the next step
  uint64_t read_backs = 0;                                   // host_syncs in which the host reads elements that shapes depend on
  std::vector<LoopReport> loops;                             // loops that were entered
};

}  // namespace pumice

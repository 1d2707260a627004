// Time limits of an execution, and reports on it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace pumice {

inline constexpr double kDefaultLoopSeconds = 2, kMaxLoopSeconds = 15;
// Returns a loop timeout clamped to kMaxLoopSeconds, with a log warning if it was larger. Throws BindingError if it is not a valid time.
std::optional<double> validate_loop_timeout(std::optional<double> seconds);

// Time limits of an execution. If it or a loop exceeds them, TimeoutError is thrown, and the results are undefined.
struct RunLimits {
  std::optional<double> timeout_seconds;                     // for the whole execution, from start()
  std::optional<double> loop_seconds = kDefaultLoopSeconds;  // for each WHILE, from each entry
  std::function<void()> interrupted;                         // called about every 50 ms while waiting; may throw
};

// Statistics of one loop in one execution, summed over all entries.
struct LoopReport {
  std::string node;                                             // name, qualified by the enclosing graphs: "outer/inner"
  std::string kind;                                             // kind of loop; "host": driven by the host
  uint64_t entries = 0, trips = 0, host_syncs = 0, wasted = 0;  // trips: iterations; wasted: recorded iterations that were skipped
};

struct RunReport {
  uint64_t submissions = 0, dispatches = 0, host_syncs = 0;  // host_syncs: how often the host waited to decide on the next step
  uint64_t read_backs = 0;                                   // host syncs in which the host read elements that shapes depend on
  std::vector<LoopReport> loops;                             // loops that were entered
};

}  // namespace pumice

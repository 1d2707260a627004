// Limits of an execution, and reports of what it did.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace pumice {

inline constexpr double kLoopSeconds = 2, kMostLoopSeconds = 15;
// A loop's limit as it holds: one over kMostLoopSeconds is clamped, with a warning in the log. Throws BindingError for a number that is no
// time.
std::optional<double> checked_loop_timeout(std::optional<double> seconds);

// The times that an execution may take. Loops and executions that take longer throw TimeoutError; the results of an execution that threw
// are undefined.
struct RunLimits {
  std::optional<double> timeout_seconds;              // for the whole, from start() on
  std::optional<double> loop_seconds = kLoopSeconds;  // for each WHILE, from each time that it is entered
  std::function<void()> interrupted;                  // called about every 50 ms while waiting; may throw
};

// A report of one loop of a program in one execution. It sums all entries of a loop that was entered several times.
struct LoopReport {
  std::string node;                                             // with the graphs that it is in: "outer/inner"
  std::string kind;                                             // "host": the host drives it
  uint64_t entries = 0, trips = 0, host_syncs = 0, wasted = 0;  // wasted: recorded iterations that were skipped
};

struct RunReport {
  uint64_t submissions = 0, dispatches = 0, host_syncs = 0;  // host_syncs: times that the host waited to decide what comes next
  uint64_t read_backs = 0;                                   // host_syncs that read elements which shapes depend on
  std::vector<LoopReport> loops;                             // loops that were entered
};

}  // namespace pumice

// Submits the work of one execution with control flow, and enforces its time limits.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/control_flow/command_list_cache.h"
#include "graph/control_flow/routine_value.h"
#include "graph/region/run_report.h"

namespace pumice {

// Memory and recordings are kept between executions. Not thread-safe.
class ControlFlowExecution {
 public:
  using Clock = std::chrono::steady_clock;

  ControlFlowExecution(std::shared_ptr<Context> context, std::string name, const RecordingOptions& options);
  void begin(const RunLimits& limits);  // begins an execution; `limits` must outlive it
  void submit(CommandList& list);       // waits if too many submissions are in flight
  void wait();                          // waits for all submissions
  void wait_for(uint64_t id);
  // Throws TimeoutError if the time limit has passed, and calls the interrupt callback, which may throw. `next_node`: name of the next
  // node, for the message.
  void check_timeout(const std::string& next_node);
  // Clock for loop timeouts. It stops during with_loop_clock_paused() and while waiting for the first run of a kernel: some drivers compile
  // at the first dispatch, which takes seconds without a cache and must not count towards the timeout.
  Clock::time_point loop_clock() const { return Clock::now() - paused_time_; }
  // Whether a WHILE entered at this loop-clock time has reached its timeout.
  bool is_loop_timed_out(Clock::time_point entered) const;
  // Runs `work`, which may bind shapes or compile kernels, with the loop clock stopped.
  template <class Work>
  decltype(auto) with_loop_clock_paused(Work&& work) {
    const LoopClockPause pause{paused_time_};
    return work();
  }
  [[noreturn]] void throw_loop_timeout(const std::string& node, uint64_t trips) const;
  // Returns a value in memory from the pool that no other value uses.
  RoutineValue allocate_value(TensorDesc desc, StagingSlotUse use);

  const std::string& name() const { return name_; }
  const RunLimits& limits() const { return *limits_; }
  const std::optional<Submission>& last_submission() const { return last_; }
  std::optional<double> device_seconds() const { return is_measured_ ? std::optional(device_seconds_) : std::nullopt; }
  StagingSlotPool& pool() { return pool_; }
  CommandListCache& recordings() { return recordings_; }

  RunReport report;  // report of the current execution

 private:
  // Adds the lifetime of this object to a duration.
  struct LoopClockPause {
    Clock::duration& total;
    Clock::time_point begin = Clock::now();
    ~LoopClockPause() { total += Clock::now() - begin; }
  };
  std::optional<double> remaining_seconds() const;
  void record_cold_submission(const Submission& submission);
  bool includes_cold_run(uint64_t id) const {
    return first_cold_ != 0 && id >= first_cold_;
  }  // whether submissions up to `id` include the first run of a kernel

  std::shared_ptr<Context> context_;
  std::string name_;
  bool is_measured_;
  double device_seconds_ = 0;
  StagingSlotPool pool_;
  CommandListCache recordings_;
  const RunLimits* limits_ = nullptr;
  Clock::time_point begin_, next_signal_;
  Clock::duration paused_time_{};            // total time for which the loop clock was stopped
  uint64_t first_cold_ = 0, last_cold_ = 0;  // first and last submission in flight with the first run of a kernel; 0: none
  std::vector<uint64_t> in_flight_;
  std::optional<Submission> last_;
};

double seconds_between(ControlFlowExecution::Clock::time_point begin, ControlFlowExecution::Clock::time_point end);

}  // namespace pumice

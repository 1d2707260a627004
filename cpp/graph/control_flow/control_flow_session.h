// Submissions of one execution of a program with control flow, and its time limits.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/control_flow/control_flow_recordings.h"
#include "graph/control_flow/routine_value.h"
#include "graph/region/run_report.h"

namespace pumice {

// Submits the work of executions. Memory and recordings are kept between executions. Not thread-safe.
class ControlFlowSession {
 public:
  using Clock = std::chrono::steady_clock;

  ControlFlowSession(std::shared_ptr<Context> context, std::string name, const RecordingOptions& options);
  void begin(const RunLimits& limits);  // begins an execution; `limits` must outlive it
  void submit(CommandList& list);       // waits if too much is in flight
  void wait();                          // waits for all submissions
  void wait_for(uint64_t id);
  // Throws TimeoutError at the time limit, and whatever the interrupt check throws. `next`: name of the next node.
  void check_time(const std::string& next);
  // Clock for loop limits. Stops during with_loop_clock_paused() and while waiting for a kernel's first run: the limit must not include
  // compilation, which takes seconds on a busy machine without a cache and which some drivers defer to the first dispatch.
  Clock::time_point loop_clock() const { return Clock::now() - paused_time_; }
  // Whether a WHILE entered at this loop-clock time has reached its limit.
  bool is_loop_over(Clock::time_point entered) const;
  // Runs `work`, which binds shapes or compiles kernels, with the loop clock stopped.
  template <class Work>
  decltype(auto) with_loop_clock_paused(Work&& work) {
    const ClockPause standstill{paused_time_};
    return work();
  }
  [[noreturn]] void fail_loop(const std::string& node, uint64_t trips) const;
  // Returns a value in new memory that is not shared.
  RoutineValue make_value(TensorDesc desc, HostSlotUse use);

  const std::string& name() const { return name_; }
  const RunLimits& limits() const { return *limits_; }
  const std::optional<Submission>& last() const { return last_; }
  std::optional<double> device_seconds() const { return is_measured_ ? std::optional(device_seconds_) : std::nullopt; }
  HostSlotPool& pool() { return pool_; }
  ControlFlowRecordings& recordings() { return recordings_; }

  RunReport report;  // report of this execution

 private:
  // Adds the lifetime of this object to a duration.
  struct ClockPause {
    Clock::duration& total;
    Clock::time_point begin = Clock::now();
    ~ClockPause() { total += Clock::now() - begin; }
  };
  std::optional<double> remaining() const;
  void note_cold(const Submission& submission);
  bool ends_cold(uint64_t id) const { return first_cold_ != 0 && id >= first_cold_; }  // includes a first run of a kernel

  std::shared_ptr<Context> context_;
  std::string name_;
  bool is_measured_;
  double device_seconds_ = 0;
  HostSlotPool pool_;
  ControlFlowRecordings recordings_;
  const RunLimits* limits_ = nullptr;
  Clock::time_point begin_, next_signal_;
  Clock::duration paused_time_{};            // total time that the loop clock has been stopped
  uint64_t first_cold_ = 0, last_cold_ = 0;  // first and last unawaited submissions with first runs of kernels; 0 if none
  std::vector<uint64_t> in_flight_;
  std::optional<Submission> last_;
};

double seconds_between(ControlFlowSession::Clock::time_point begin, ControlFlowSession::Clock::time_point end);

}  // namespace pumice

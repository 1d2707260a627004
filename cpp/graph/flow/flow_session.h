// The submissions of one execution of a program with control flow, and its time limits.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/flow/flow_recordings.h"
#include "graph/flow/flow_values.h"
#include "graph/region/run_report.h"

namespace pumice {

// A session submits the work of an execution. Its memory and recordings last from one execution to the next. Not thread-safe.
class FlowSession {
 public:
  using Clock = std::chrono::steady_clock;

  FlowSession(std::shared_ptr<Context> context, std::string name, const RecordingOptions& options);
  void begin(const RunLimits& limits);  // begins an execution; `limits` stay until it ends
  void submit(CommandList& list);       // waits where too much is in flight
  void wait();                          // for all that was submitted
  void wait_for(uint64_t id);
  // Throws where the execution's time is over, or somebody interrupts it. `next` names what was to come.
  void check_time(const std::string& next);
  // The clock of loops. It stands still during off_the_clock() and while the first run of a kernel is waited for: a loop's limit is for
  // what it does, and not for the compilation of what its first iteration runs, which takes seconds on a busy machine without a cache and
  // which drivers may put off until a kernel's first dispatch.
  Clock::time_point loop_clock() const { return Clock::now() - stood_still_; }
  // Whether a WHILE that was entered at that time of the loops' clock has taken as long as it may.
  bool is_loop_over(Clock::time_point entered) const;
  // The result of `work`, which binds shapes or compiles kernels.
  template <class Work>
  decltype(auto) off_the_clock(Work&& work) {
    const Standstill standstill{stood_still_};
    return work();
  }
  [[noreturn]] void fail_loop(const std::string& node, uint64_t trips) const;
  // A value in new memory, which nobody else holds.
  FlowValue made(TensorDesc desc, HostSlotUse use);

  const std::string& name() const { return name_; }
  const RunLimits& limits() const { return *limits_; }
  const std::optional<Submission>& last() const { return last_; }
  std::optional<double> device_seconds() const { return is_measured_ ? std::optional(device_seconds_) : std::nullopt; }
  HostSlotPool& pool() { return pool_; }
  FlowRecordings& recordings() { return recordings_; }

  RunReport report;  // the report of this execution

 private:
  // Adds its own lifetime to a duration.
  struct Standstill {
    Clock::duration& total;
    Clock::time_point begin = Clock::now();
    ~Standstill() { total += Clock::now() - begin; }
  };
  std::optional<double> remaining() const;
  void note_cold(const Submission& submission);
  bool ends_cold(uint64_t id) const { return first_cold_ != 0 && id >= first_cold_; }  // whether a first run is among what ends by then

  std::shared_ptr<Context> context_;
  std::string name_;
  bool is_measured_;
  double device_seconds_ = 0;
  HostSlotPool pool_;
  FlowRecordings recordings_;
  const RunLimits* limits_ = nullptr;
  Clock::time_point begin_, next_signal_;
  Clock::duration stood_still_{};            // how long the clock of loops has stood still in all
  uint64_t first_cold_ = 0, last_cold_ = 0;  // submissions with first runs of kernels that nobody has waited for; 0 where there is none
  std::vector<uint64_t> in_flight_;
  std::optional<Submission> last_;
};

double seconds_between(FlowSession::Clock::time_point begin, FlowSession::Clock::time_point end);

}  // namespace pumice

// Host-side trace of a profile: time spans with a kind and a name. A span costs one relaxed load while tracing is off.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pumice {

struct HostTraceEvent {
  std::string kind, name;      // kind: "wait", "upload", "compile" ...
  int64_t begin = 0, end = 0;  // times of get_trace_time_ns()
  uint64_t bytes = 0;
  uint64_t thread = 0;  // set by add_event()
};

int64_t get_trace_time_ns();  // nanoseconds of the steady clock, the same as Python's perf_counter_ns()
bool is_tracing() noexcept;
void start_trace();                        // discards earlier events
std::vector<HostTraceEvent> stop_trace();  // sorted by end time
void add_event(HostTraceEvent event);      // sets the event's thread to the calling thread

// Traces the time until the end of the scope, if tracing is on at construction. `kind` and `name` must outlive it.
class HostTraceSpan {
 public:
  explicit HostTraceSpan(std::string_view kind, std::string_view name = {}, uint64_t bytes = 0) noexcept
      : kind_(kind), name_(name), bytes_(bytes), begin_(is_tracing() ? get_trace_time_ns() : -1) {}
  ~HostTraceSpan() {
    if (begin_ >= 0) close();
  }
  HostTraceSpan(const HostTraceSpan&) = delete;
  void rename(std::string_view kind) noexcept { kind_ = kind; }

 private:
  void close() noexcept;

  std::string_view kind_, name_;
  uint64_t bytes_;
  int64_t begin_;
};

}  // namespace pumice

// The trace holds what the host does while a profile is on: spans of time with a kind and a name. Off, a span costs one relaxed load.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pumice {

struct HostEvent {
  std::string kind, name;      // kind: "wait", "upload", "compile" ...
  int64_t begin = 0, end = 0;  // nanoseconds of trace_clock()
  uint64_t bytes = 0;
  uint64_t thread = 0;  // add_event() fills it in
};

int64_t trace_clock();  // nanoseconds of the steady clock, which is Python's perf_counter_ns()
bool is_tracing() noexcept;
void start_trace();                   // forgets the events so far
std::vector<HostEvent> stop_trace();  // in the order of their ends
void add_event(HostEvent event);      // of the calling thread

// The time from here to the end of the block, where a trace is on at its beginning. `kind` and `name` have to outlive it.
class HostSpan {
 public:
  explicit HostSpan(std::string_view kind, std::string_view name = {}, uint64_t bytes = 0) noexcept
      : kind_(kind), name_(name), bytes_(bytes), begin_(is_tracing() ? trace_clock() : -1) {}
  ~HostSpan() {
    if (begin_ >= 0) close();
  }
  HostSpan(const HostSpan&) = delete;
  void rename(std::string_view kind) noexcept { kind_ = kind; }

 private:
  void close() noexcept;

  std::string_view kind_, name_;
  uint64_t bytes_;
  int64_t begin_;
};

}  // namespace pumice

#include "core/host_trace.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace pumice {
namespace {

constexpr size_t kMaxEvents = 1 << 20;  // bounds memory use if a trace is never stopped

struct HostTrace {
  std::atomic<bool> is_on{false};
  std::mutex mutex;
  std::vector<HostTraceEvent> events;
};

HostTrace& get_host_trace() {
  static auto* const instance = new HostTrace;  // never destroyed: threads may still add events at exit
  return *instance;
}

}  // namespace

int64_t get_trace_time_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool is_tracing() noexcept {
  return get_host_trace().is_on.load(std::memory_order_relaxed);
}

void start_trace() {
  const std::lock_guard lock(get_host_trace().mutex);
  get_host_trace().events.clear();
  get_host_trace().is_on = true;
}

std::vector<HostTraceEvent> stop_trace() {
  const std::lock_guard lock(get_host_trace().mutex);
  get_host_trace().is_on = false;
  return std::exchange(get_host_trace().events, {});
}

void add_event(HostTraceEvent event) {
  event.thread = std::hash<std::thread::id>{}(std::this_thread::get_id());
  const std::lock_guard lock(get_host_trace().mutex);
  if (get_host_trace().is_on && get_host_trace().events.size() < kMaxEvents) get_host_trace().events.push_back(std::move(event));
}

// Drops the span if memory is exhausted: tracing must not make the traced code fail.
void HostTraceSpan::close() noexcept {
  try {
    add_event({std::string(kind_), std::string(name_), begin_, get_trace_time_ns(), bytes_});
  } catch (...) {
  }
}

}  // namespace pumice

#include "graph/region/execution_lease_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "core/error.h"

namespace pumice {
namespace {

constexpr size_t kPreferredLeases = 2;  // with this many leases, callers wait for a lease in flight instead of creating a new one
constexpr size_t kMaxPooledLeases = 8;  // maximum number of leases
// Waiting callers poll, because the pool is not notified when a lease is dropped.
constexpr auto kLeasePoll = std::chrono::microseconds(200);
constexpr auto kSignalPeriod = std::chrono::milliseconds(50);

using Clock = std::chrono::steady_clock;

}  // namespace

std::pair<std::shared_ptr<ExecutionLease>, bool> ExecutionLeasePool::find_or_create_lease(
    Context& context, const std::function<std::shared_ptr<ExecutionLease>()>& make) {
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<ExecutionLease>* in_flight = nullptr;
  for (const auto& pooled : pool_) {
    if (pooled.use_count() > 1) continue;
    std::atomic_thread_fence(std::memory_order_acquire);  // makes writes of the last owner visible to this thread
    if (context.get_last_completed() >= pooled->last_submission()) return {pooled, false};
    in_flight = &pooled;
  }
  // With fewer than kPreferredLeases leases, creates a new one instead of waiting for an execution.
  if (pool_.size() >= kPreferredLeases && in_flight) return {*in_flight, true};
  if (pool_.size() >= kMaxPooledLeases) return {};
  pool_.push_back(make());
  return {pool_.back(), false};
}

std::shared_ptr<ExecutionLease> ExecutionLeasePool::acquire_lease(Context& context,
                                                                  const std::function<std::shared_ptr<ExecutionLease>()>& make, bool wait,
                                                                  std::optional<double> timeout_seconds,
                                                                  const std::function<void()>& interrupted) {
  const auto begin = Clock::now();
  auto next_signal = begin + kSignalPeriod;
  for (;;) {
    if (auto [leased, is_busy] = find_or_create_lease(context, make); leased) {
      std::optional<double> left;
      if (timeout_seconds) left = std::max(0.0, *timeout_seconds - std::chrono::duration<double>(Clock::now() - begin).count());
      // Waits without the lock, because `interrupted` may lease another recording.
      if (is_busy) context.wait(leased->last_submission(), left, interrupted);
      return leased;
    }
    const std::string message = std::to_string(kMaxPooledLeases) + " executions of " + subject_ + " are under way";
    if (!wait) throw StateError(message + "; wait for one and drop it first");
    const auto now = Clock::now();
    if (timeout_seconds && std::chrono::duration<double>(now - begin).count() >= *timeout_seconds) throw TimeoutError(message, true);
    if (interrupted && now >= next_signal) {
      interrupted();
      next_signal = now + kSignalPeriod;
    }
    std::this_thread::sleep_for(kLeasePoll);
  }
}

void ExecutionLeasePool::clear() {
  const std::lock_guard lock(mutex_);
  pool_.clear();
}

}  // namespace pumice

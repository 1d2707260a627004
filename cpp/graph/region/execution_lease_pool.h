// A pool of leases. Each lease serves one execution at a time.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/region/execution_lease.h"

namespace pumice {

// A lease is reused once it is free and the device has finished with it. Thread-safe.
class ExecutionLeasePool {
 public:
  explicit ExecutionLeasePool(std::string subject)
      : subject_(std::move(subject)) {}  // `subject`: description of the leased object, for messages
  // Returns a free lease or creates one. If the maximum number is in use, waits and calls `interrupted` about every 50 ms, which may throw;
  // with `wait` false, throws StateError.
  std::shared_ptr<ExecutionLease> acquire_lease(Context& context, const std::function<std::shared_ptr<ExecutionLease>()>& make, bool wait,
                                                std::optional<double> timeout_seconds, const std::function<void()>& interrupted);
  void clear();

 private:
  // Returns a lease, and whether the device may still be working on it; null if all leases are in use.
  std::pair<std::shared_ptr<ExecutionLease>, bool> find_or_create_lease(Context& context,
                                                                        const std::function<std::shared_ptr<ExecutionLease>()>& make);

  std::string subject_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<ExecutionLease>> pool_;  // an entry is free if it has no other owner
};

}  // namespace pumice

// A pool of leases; each serves one execution at a time.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/region/lease.h"

namespace pumice {

// Reuses a lease once it is free and the device has finished with it. Thread-safe.
class LeasePool {
 public:
  explicit LeasePool(std::string subject) : subject_(std::move(subject)) {}  // what is leased, for messages
  // Takes or creates a lease. If all are in use, waits, calling `interrupted` about every 50 ms (it may throw), or throws StateError if
  // `wait` is false.
  std::shared_ptr<Lease> lease(Context& context, const std::function<std::shared_ptr<Lease>()>& make, bool wait,
                               std::optional<double> timeout_seconds, const std::function<void()>& interrupted);
  void clear();

 private:
  // Returns a lease and whether the device may still be working on it; null if all are in use.
  std::pair<std::shared_ptr<Lease>, bool> try_lease(Context& context, const std::function<std::shared_ptr<Lease>()>& make);

  std::string subject_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Lease>> pool_;  // leased entries have other owners too
};

}  // namespace pumice

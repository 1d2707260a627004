// Leases kept between executions: each serves one execution at a time.
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

// Hands out a lease again once nobody holds it and the device has finished with it. Thread-safe.
class LeasePool {
 public:
  explicit LeasePool(std::string what) : what_(std::move(what)) {}  // for messages
  // Takes a lease, or makes one. Waits where all are held: `interrupted` is called about every 50 ms and may throw; with `wait` false
  // throws StateError.
  std::shared_ptr<Lease> lease(Context& context, const std::function<std::shared_ptr<Lease>()>& make, bool wait,
                               std::optional<double> timeout_seconds, const std::function<void()>& interrupted);
  void clear();

 private:
  // The lease to hand out, and whether the device may still work for it; none where all are held.
  std::pair<std::shared_ptr<Lease>, bool> try_lease(Context& context, const std::function<std::shared_ptr<Lease>()>& make);

  std::string what_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Lease>> pool_;  // leased ones have other owners too
};

}  // namespace pumice

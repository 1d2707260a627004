// Timeline semaphores that another interface of the same GPU knows too.
#pragma once

#include <cstdint>
#include <memory>

#include "device/context.h"

struct VkSemaphore_T;

namespace pumice {

// A timeline semaphore that another interface can import by a file descriptor.
class SharedTimeline {
 public:
  // Throws UnsupportedError naming what is missing (the extension, the driver's export of timelines).
  explicit SharedTimeline(std::shared_ptr<Context> context);
  ~SharedTimeline();  // the semaphore is freed once the work in flight has finished
  SharedTimeline(const SharedTimeline&) = delete;
  int export_semaphore() const;  // a new file descriptor, which the caller owns
  uint64_t value() const;
  VkSemaphore_T* handle() const { return semaphore_; }
  const std::shared_ptr<Context>& context() const { return context_; }

 private:
  std::shared_ptr<Context> context_;
  VkSemaphore_T* semaphore_ = nullptr;
};

// From here to end_order() on the calling thread, submissions to the timelines' context come after `ready` has the value, and `done` gets
// the id of each. StateError where the timelines are of two contexts.
void begin_order(std::shared_ptr<SharedTimeline> ready, uint64_t ready_value, std::shared_ptr<SharedTimeline> done);

}  // namespace pumice

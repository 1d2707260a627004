// Timeline semaphores shared with another API on the same GPU.
#pragma once

#include <cstdint>
#include <memory>

#include "device/context.h"

struct VkSemaphore_T;

namespace pumice {

// A timeline semaphore that another API can import by file descriptor.
class SharedTimeline {
 public:
  // Throws UnsupportedError if the extension or the driver's support for exporting timelines is missing.
  explicit SharedTimeline(std::shared_ptr<Context> context);
  ~SharedTimeline();  // frees the semaphore once the work in flight has finished
  SharedTimeline(const SharedTimeline&) = delete;
  int export_semaphore() const;  // returns a new file descriptor, owned by the caller
  uint64_t value() const;
  VkSemaphore_T* handle() const { return semaphore_; }
  const std::shared_ptr<Context>& context() const { return context_; }

 private:
  std::shared_ptr<Context> context_;
  VkSemaphore_T* semaphore_ = nullptr;
};

// Until end_submission_order(), every submission by the calling thread to the timelines' context runs after `ready` has reached the value,
// and signals `done` with its id. Throws StateError if the timelines belong to different contexts.
void begin_submission_order(std::shared_ptr<SharedTimeline> ready, uint64_t ready_value, std::shared_ptr<SharedTimeline> done);

}  // namespace pumice

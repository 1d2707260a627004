// The order between a context's submissions and another interface's work on the same GPU: timeline semaphores that both know.
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

// What the submissions of one thread to one context wait for, and what they signal.
struct SubmissionOrder {
  std::shared_ptr<SharedTimeline> ready, done;
  uint64_t ready_value = 0;  // the first submission waits for `ready` to have it; those after come after it on the queue anyway
  uint64_t last = 0;         // the last submission; `done` gets its id
  bool has_waited = false;
};

// From here to end_order() on the calling thread, submissions to the timelines' context come after `ready` has the value, and `done` gets
// the id of each. Orders nest. StateError where the timelines are of two contexts.
void begin_order(std::shared_ptr<SharedTimeline> ready, uint64_t ready_value, std::shared_ptr<SharedTimeline> done);
// Ends the innermost order of the calling thread: the id of the last submission in it, 0 where there was none. StateError without an order.
uint64_t end_order();
// The innermost order of the calling thread for this context; null where there is none.
SubmissionOrder* submission_order_of(const Context& context);

}  // namespace pumice

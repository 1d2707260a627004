// The order between the submissions of a thread and another interface's work on the same GPU.
#pragma once

#include <cstdint>
#include <memory>

struct VkSemaphore_T;

namespace pumice {

class Context;

// What the submissions of one thread to one context wait for, and what they signal.
struct SubmissionOrder {
  const Context* context = nullptr;
  VkSemaphore_T *ready = nullptr, *done = nullptr;
  std::shared_ptr<const void> owners[2] = {};  // of both semaphores
  uint64_t ready_value = 0;                    // the first submission waits for `ready` to have it; those after come after it on the queue
  uint64_t last = 0;                           // the last submission; `done` gets its id
  bool has_waited = false;
};

// Begins an order on the calling thread; orders nest.
void push_order(SubmissionOrder order);
// Ends the innermost order of the calling thread: the id of the last submission in it, 0 where there was none. StateError without an order.
uint64_t end_order();
// The innermost order of the calling thread for this context; null where there is none.
SubmissionOrder* submission_order_of(const Context& context);

}  // namespace pumice

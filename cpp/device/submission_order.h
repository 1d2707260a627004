// Orders the submissions of a thread relative to another API's work on the same GPU.
#pragma once

#include <cstdint>
#include <memory>

struct VkSemaphore_T;

namespace pumice {

class Context;

// Semaphores that a thread's submissions to a context wait for and signal.
struct SubmissionOrder {
  const Context* context = nullptr;
  VkSemaphore_T *ready = nullptr, *done = nullptr;
  std::shared_ptr<const void> owners[2] = {};  // keeps both semaphores alive
  uint64_t ready_value = 0;  // the first submission waits until `ready` reaches this value; later ones follow it on the queue
  uint64_t last = 0;         // id of the last submission; `done` reaches this value
  bool has_waited = false;
};

// Begins an order on the calling thread. Orders nest.
void push_submission_order(SubmissionOrder order);
// Ends the innermost order of the calling thread. Returns the id of its last submission, or 0 if there was none. Throws StateError if there
// is no order.
uint64_t end_submission_order();
// Returns the innermost order of the calling thread for this context, or null.
SubmissionOrder* find_submission_order(const Context& context);

}  // namespace pumice

#include "device/submission_order.h"

#include <atomic>
#include <vector>

#include "core/error.h"

namespace pumice {
namespace {

thread_local std::vector<SubmissionOrder> orders;  // orders of this thread, innermost last
std::atomic<size_t> open_orders{0};                // number of orders in all threads: if 0, submissions skip the lookup

}  // namespace

SubmissionOrder* find_submission_order(const Context& context) {
  if (open_orders.load(std::memory_order_relaxed) == 0) return nullptr;
  for (size_t i = orders.size(); i-- > 0;)
    if (orders[i].context == &context) return &orders[i];
  return nullptr;
}

void push_submission_order(SubmissionOrder order) {
  orders.push_back(std::move(order));
  ++open_orders;
}

uint64_t end_submission_order() {
  if (orders.empty()) throw StateError("no order has begun on this thread");
  const uint64_t last = orders.back().last;
  orders.pop_back();
  --open_orders;
  return last;
}

}  // namespace pumice

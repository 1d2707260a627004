#include "device/submission_order.h"

#include <vector>

#include "core/error.h"

namespace pumice {
namespace {

thread_local std::vector<SubmissionOrder> orders;  // of this thread, the innermost last

}  // namespace

SubmissionOrder* submission_order_of(const Context& context) {
  for (size_t i = orders.size(); i-- > 0;)
    if (orders[i].context == &context) return &orders[i];
  return nullptr;
}

void push_order(SubmissionOrder order) {
  orders.push_back(std::move(order));
}

uint64_t end_order() {
  if (orders.empty()) throw StateError("no order has begun on this thread");
  const uint64_t last = orders.back().last;
  orders.pop_back();
  return last;
}

}  // namespace pumice

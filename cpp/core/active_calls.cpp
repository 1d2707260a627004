#include "core/active_calls.h"

#include <atomic>

namespace pumice {
namespace {

std::atomic<int> active_calls{0};

}  // namespace

ActiveCallGuard::ActiveCallGuard() {
  ++active_calls;
}

ActiveCallGuard::~ActiveCallGuard() {
  --active_calls;
}

bool has_active_calls() {
  return active_calls > 0;
}

}  // namespace pumice

#include "core/interrupts.h"

#include <atomic>

namespace pumice {
namespace {

std::atomic<bool (*)()> probe{nullptr};
std::atomic<void (*)()> check{nullptr};

}  // namespace

void set_interrupt_hooks(const InterruptHooks& hooks) {
  probe = hooks.probe;
  check = hooks.check;
}

bool is_interrupted() {
  const auto ask = probe.load();
  return ask && ask();
}

void check_interrupts() {
  if (const auto ask = check.load()) ask();
}

}  // namespace pumice

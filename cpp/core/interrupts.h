// Hooks through which long work on the host learns of a user's interrupt (Ctrl-C). The engine's face sets them.
#pragma once

namespace pumice {

struct InterruptHooks {
  bool (*probe)() = nullptr;  // whether the user interrupts; it must not throw, since destructors ask it
  void (*check)() = nullptr;  // throws what an interrupt raises; it also hands on what was logged
};

void set_interrupt_hooks(const InterruptHooks& hooks);
bool is_interrupted();    // false where nobody has set the hooks
void check_interrupts();  // returns where nobody has set the hooks

}  // namespace pumice

// Hooks that let long host-side work notice a user interrupt (Ctrl-C). The Python bindings set them.
#pragma once

namespace pumice {

struct InterruptHooks {
  bool (*probe)() = nullptr;  // whether an interrupt is pending; must not throw, since destructors call it
  void (*check)() = nullptr;  // throws if an interrupt is pending; also forwards log messages
};

void set_interrupt_hooks(const InterruptHooks& hooks);
bool is_interrupted();    // false if no hooks are set
void check_interrupts();  // no-op if no hooks are set

}  // namespace pumice

// A check that runs after every wait on a context.
#pragma once

#include <cstdint>

#include "device/context.h"

namespace pumice {

class WaitCheck {
 public:
  virtual ~WaitCheck() = default;
  // Called when execution `id` has finished. Throws if its results must not be used.
  virtual void check(Context& context, uint64_t id) = 0;
};

void set_wait_check(Context& context, WaitCheck* check);  // `check` must live as long as the context
void run_wait_check(Context& context, uint64_t id);       // last step of Context::wait(), for code that polls

}  // namespace pumice

// A check that follows every wait of a context.
#pragma once

#include <cstdint>

#include "device/context.h"

namespace pumice {

class WaitCheck {
 public:
  virtual ~WaitCheck() = default;
  // Execution `id` has finished. Throws where its results must not be used.
  virtual void check(Context& context, uint64_t id) = 0;
};

void set_wait_check(Context& context, WaitCheck* check);  // which lives as long as the context
void check_finished(Context& context, uint64_t id);       // the last part of Context::wait(), for those who poll

}  // namespace pumice

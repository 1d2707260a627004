// A hook that runs after every wait on a context and may reject the results.
#pragma once

#include <cstdint>

#include "device/context.h"

namespace pumice {

class PostWaitHook {
 public:
  virtual ~PostWaitHook() = default;
  // Called when execution `id` has finished. Throws if its results must not be used.
  virtual void check(Context& context, uint64_t id) = 0;
};

void set_post_wait_hook(Context& context, PostWaitHook* hook);  // `hook` must live as long as the context
void run_post_wait_hook(Context& context, uint64_t id);         // last step of Context::wait(), for code that polls

}  // namespace pumice

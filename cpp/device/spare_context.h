// Keeps a second, idle context on the same device: creating a device takes longer than running a small model.
#pragma once

#include <memory>

#include "device/context.h"

namespace pumice {

// Removes and returns the spare context, or null if there is no usable one. Throws StateError if the context is closed or was created
// before a fork, DeviceLostError if its device is lost.
std::shared_ptr<Context> take_spare_context(Context& context);

// Stores an idle context until take_spare_context() removes it or `context` is closed, which also closes the spare. Closes the previous
// spare. Closes the new spare instead of storing it if it or `context` is unusable. An abandoned `context` never closes its spare. Throws
// StateError if both contexts are the same.
void store_spare_context(Context& context, std::shared_ptr<Context> spare);

}  // namespace pumice

// Keeps a second, idle context on the same device: creating a device takes longer than running a small model.
#pragma once

#include <memory>

#include "device/context.h"

namespace pumice {

// Removes and returns the spare context, or null if there is no usable one. Throws StateError if the context is closed or was created
// before a fork, DeviceLostError if its device is lost.
std::shared_ptr<Context> take_spare(Context& context);

// Keeps an idle context until take_spare() returns it or `context` is closed, which closes it too. Only the latest spare is kept; a
// replaced or unusable one is closed, and so is the spare of an unusable `context`. If `context` is abandoned, its spare is never closed,
// like its other objects. Throws StateError if both contexts are the same.
void keep_spare(Context& context, std::shared_ptr<Context> spare);

}  // namespace pumice

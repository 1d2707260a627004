// A second context of a device, kept idle with the first one: to make a device takes a driver longer than a small model runs.
#pragma once

#include <memory>

#include "device/context.h"

namespace pumice {

// The spare context that is kept with this one, which the caller has to itself from then on; null where there is none that is usable.
// Throws StateError where the context is closed or comes from before a fork, and DeviceLostError where its device is lost.
std::shared_ptr<Context> take_spare(Context& context);

// Keeps a context, with which its user is done, until take_spare() asks for it or `context` is closed, which closes it too. One is kept,
// the latest: another one is closed. So is a spare that cannot be used any more, or whose `context` cannot. A context that is abandoned
// leaves its spare to the end of the process, as it leaves its own objects. Throws StateError where both are the same context.
void keep_spare(Context& context, std::shared_ptr<Context> spare);

}  // namespace pumice

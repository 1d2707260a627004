// Runs what the engine's kernels rely on, once for a driver, and compares it with what is right.
#pragma once

#include <memory>

#include "device/context.h"

namespace pumice {

// Quirks of the context's driver: those that the table knows, those that a trial of it has shown and those that the context is told to
// assume. The trial's outcome is kept in the cache, of software drivers with the host's processor. Log messages name what was found.
QuirkSet driver_quirks(const std::shared_ptr<Context>& context);

// The quirks that the trial of the driver has shown.
QuirkSet tried_quirks(const std::shared_ptr<Context>& context);

}  // namespace pumice

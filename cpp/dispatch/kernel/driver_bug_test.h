// Tests, once per driver, behaviour that the engine's kernels depend on.
#pragma once

#include <memory>

#include "device/context.h"

namespace pumice {

// Returns the quirks of the context's driver: listed in the table of known quirks, detected by the trial, or assumed by the
// context's options. Trial results are cached on disk; for software drivers the key includes the host CPU. Findings are logged.
QuirkSet get_driver_quirks(const std::shared_ptr<Context>& context);

// Returns the quirks detected by the trial; none in a compile-only context, which cannot run it.
QuirkSet get_detected_quirks(const std::shared_ptr<Context>& context);

}  // namespace pumice

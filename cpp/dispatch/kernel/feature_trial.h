// Tests, once per driver, the features and limits that kernels use, and opens contexts without those that are wrong.
#pragma once

#include <memory>

#include "device/context.h"

namespace pumice {

// Creates a context like Context::create(). If the driver fails a check of the trial, the context has the quirk that names it: features
// with wrong results are disabled and limits lowered, as by ContextOptions; kernels are refused if nothing can replace what is wrong.
// Trial results are cached on disk. Throws DeviceError if the driver does not finish the trial.
std::shared_ptr<Context> open_context(const ContextOptions& options = {});

// Returns the quirks that the trial of this context's driver detected; none if the context was not created by open_context().
QuirkSet get_feature_trial_quirks(Context& context);

}  // namespace pumice

// The options that a Context is made with, another context like it, and faults of one for tests.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/driver/limit_mask.h"

namespace pumice {

class Context;

struct ContextOptions {
  // "" (PUMICE_DEVICE, else the best), "uuid:...", "pci:...", an index ("1"), a kind ("discrete", "software") or part of a name.
  std::string device;
  std::vector<std::string> without;  // features and extensions to mask, so that fallbacks can be tested
  LimitMask limits;                  // limits to keep below the device's own, for tests too
  std::vector<std::string> quirks;   // quirks that the driver is taken to have, for tests too
};

// The features and extensions that it does without although the device may have them.
const std::vector<std::string>& masked_features(const Context& context);

// Another context of the same device with the same options, which does without these features and extensions as well. Throws as
// Context::create() does.
std::shared_ptr<Context> another_context(const Context& context, const std::vector<std::string>& without);

// A fault for tests: the context's queue answers that the device is lost once it has taken so many further submissions.
void lose_device_after(Context& context, uint64_t submissions);

}  // namespace pumice

// Options of a Context, derived contexts, and a test hook for device loss.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/driver/limit_mask.h"

namespace pumice {

class Context;

struct ContextOptions {
  // Requested device: "" (PUMICE_DEVICE if set, else the best device), "uuid:...", "pci:...", an index ("1"), a kind ("discrete",
  // "software") or part of a name.
  std::string device;
  std::vector<std::string> without;  // features and extensions to mask, to test fallbacks
  LimitMask limits;                  // limits to reduce, for tests
  std::vector<std::string> quirks;   // quirks to assume, for tests
  // Compile and record everything, but execute nothing; see Context::compile_only(). PUMICE_COMPILE_ONLY=1 sets it for all contexts.
  bool compile_only = false;
};

// Features and extensions that the context does not use even if the device supports them.
const std::vector<std::string>& get_masked_features(const Context& context);

// Creates another context on the same device with the same options, masking these features and extensions as well. Throws like
// Context::create().
std::shared_ptr<Context> derive_context(const Context& context, const std::vector<std::string>& without);

// Test hook: simulates device loss after this many further submissions.
void simulate_device_loss_after(Context& context, uint64_t submissions);

}  // namespace pumice

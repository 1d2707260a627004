// The options that a Context was made with, so that another one like it can be made, and faults of it for tests.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace pumice {

class Context;

// The features and extensions that it does without although the device may have them.
const std::vector<std::string>& masked_features(const Context& context);

// Another context of the same device with the same options, which does without these features and extensions as well. Throws as
// Context::create() does.
std::shared_ptr<Context> another_context(const Context& context, const std::vector<std::string>& without);

// A fault for tests: the context's queue answers that the device is lost once it has taken so many further submissions.
void lose_device_after(Context& context, uint64_t submissions);

}  // namespace pumice

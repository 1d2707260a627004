// The options that a Context was made with, so that another one like it can be made, and faults of it for tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pumice {

class Context;

// The features and extensions that it does without although the device may have them.
const std::vector<std::string>& masked_features(const Context& context);

// A fault for tests: the context's queue answers that the device is lost once it has taken so many further submissions.
void lose_device_after(Context& context, uint64_t submissions);

}  // namespace pumice

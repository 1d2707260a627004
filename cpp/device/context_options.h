// The options that a Context was made with, so that another one like it can be made.
#pragma once

#include <string>
#include <vector>

namespace pumice {

class Context;

// The features and extensions that it does without although the device may have them.
const std::vector<std::string>& masked_features(const Context& context);

}  // namespace pumice

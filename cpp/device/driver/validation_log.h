// Collects messages of the Khronos validation layer for tests.
#pragma once

#include <string>
#include <vector>

namespace pumice {

void add_validation_message(std::string text);

// Returns the messages since the last call (PUMICE_VALIDATION=1 enables the layer before the first Context).
std::vector<std::string> take_validation_messages();

}  // namespace pumice

// The messages of the Khronos validation layer, kept for tests to read.
#pragma once

#include <string>
#include <vector>

namespace pumice {

void note_validation_message(std::string text);

// Messages of the Khronos validation layer since the last call (PUMICE_VALIDATION=1 turns the layer on before the first Context).
std::vector<std::string> take_validation_messages();

}  // namespace pumice

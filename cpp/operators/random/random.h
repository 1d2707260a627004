// The kinds of random numbers that one kernel makes: OperatorRow::form of the rows of lower_random().
#pragma once

#include <cstdint>

namespace pumice {

enum class RandomKind : uint8_t { uniform, normal, mask, state };  // the numbers that random.comp has for them

}  // namespace pumice

// Distributions of the random kernel: OperatorRow::form for lower_random().
#pragma once

#include <cstdint>

namespace pumice {

enum class RandomKind : uint8_t { uniform, normal, mask, state };  // numbering of random.comp

}  // namespace pumice

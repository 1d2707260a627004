// The kinds of random numbers that one kernel makes.
#pragma once

#include <cstdint>
#include <string_view>

namespace pumice {

enum class RandomKind : uint8_t { uniform, normal, mask, state };  // the numbers that random.comp has for them
std::string_view name(RandomKind kind);                            // the row's name

}  // namespace pumice

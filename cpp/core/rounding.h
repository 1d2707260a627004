// Ceiling division and rounding up to multiples, for non-negative integers.
#pragma once

#include <concepts>
#include <type_traits>

namespace pumice {

template <std::integral T>
constexpr T ceil_div(T value, std::type_identity_t<T> divisor) {
  return (value + divisor - 1) / divisor;
}

template <std::integral T>
constexpr T round_up(T value, std::type_identity_t<T> multiple) {
  return ceil_div(value, multiple) * multiple;
}

}  // namespace pumice

// Ceiling division and rounding up to multiples, for non-negative integers.
#pragma once

#include <concepts>
#include <type_traits>

namespace pumice {

template <std::integral T>
constexpr T ceil_div(T value, std::type_identity_t<T> by) {
  return (value + by - 1) / by;
}

template <std::integral T>
constexpr T round_up(T value, std::type_identity_t<T> to) {
  return ceil_div(value, to) * to;
}

}  // namespace pumice

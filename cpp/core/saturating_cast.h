// Saturating conversion of floats to integers.
#pragma once

#include <concepts>
#include <limits>

namespace pumice {

// Truncates to an integer, clamps to the range of T, and maps NaN to 0.
template <std::integral T>
constexpr T saturating_cast(double value) {
  using Limits = std::numeric_limits<T>;
  constexpr double low = static_cast<double>(Limits::min()), end = 2 * static_cast<double>(T{1} << (Limits::digits - 1));
  if (value >= end) return Limits::max();
  if (value > low) return static_cast<T>(value);
  return value <= low ? Limits::min() : T{0};
}

}  // namespace pumice

// Floats as integers.
#pragma once

#include <concepts>
#include <limits>

namespace pumice {

// A float truncated to an integer: the end of T's range where it is beyond that, 0 for NaN.
template <std::integral T>
constexpr T saturated(double value) {
  using Limits = std::numeric_limits<T>;
  constexpr double low = static_cast<double>(Limits::min()), end = 2 * static_cast<double>(T{1} << (Limits::digits - 1));
  if (value >= end) return Limits::max();
  if (value > low) return static_cast<T>(value);
  return value <= low ? Limits::min() : T{0};
}

}  // namespace pumice

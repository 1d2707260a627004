// Counts nonzero elements in runs, one invocation per run.
#pragma once

#include <cstdint>
#include <string_view>

namespace pumice {

inline constexpr std::string_view kCountNonZero = "pumice::CountNonZero";
inline constexpr int64_t kNonZeroRun = 64;  // elements per run

constexpr int64_t count_non_zero_runs(int64_t elements) {
  return (elements + kNonZeroRun - 1) / kNonZeroRun;
}

}  // namespace pumice

// Chunk size of large transfers.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/rounding.h"

namespace pumice {

// The device transfers one chunk while the host copies the next, so all but small transfers use at least four chunks. On an H200, a 1 MiB
// transfer and a submission take 20 us each; with the largest chunks the submission cost is negligible.
inline uint64_t choose_chunk_bytes(uint64_t bytes) {
  constexpr uint64_t kSmallest = uint64_t{1} << 20, kLargest = uint64_t{4} << 20;
  return std::clamp(round_up(ceil_div(bytes, 4), kSmallest), kSmallest, kLargest);
}

}  // namespace pumice

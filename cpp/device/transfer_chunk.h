// Chunk size of large transfers.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/rounding.h"

namespace pumice {

// The device moves a chunk while the host copies the next ones, so transfers use at least four chunks unless they are small. On an H200,
// moving 1 MiB takes 20 us, as long as a submission; with the largest chunks the submission cost is negligible.
inline uint64_t transfer_chunk(uint64_t bytes) {
  constexpr uint64_t kSmallest = uint64_t{1} << 20, kLargest = uint64_t{4} << 20;
  return std::clamp(round_up(ceil_div(bytes, 4), kSmallest), kSmallest, kLargest);
}

}  // namespace pumice

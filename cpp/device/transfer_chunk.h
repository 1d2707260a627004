// The chunks that transfers of many bytes are cut into.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/rounding.h"

namespace pumice {

// The device moves one chunk while the host copies the next ones: there are four or more, except of few bytes. On an H200 a chunk of 1 MiB
// takes 20 us, as long as its submission; of the largest, submissions are hardly felt.
inline uint64_t transfer_chunk(uint64_t bytes) {
  constexpr uint64_t kSmallest = uint64_t{1} << 20, kLargest = uint64_t{4} << 20;
  return std::clamp(round_up(ceil_div(bytes, 4), kSmallest), kSmallest, kLargest);
}

}  // namespace pumice

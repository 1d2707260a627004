// The arena of temporary tensors: ranges of one resource, shared by tensors that are not live at the same time.
#pragma once

#include <cstdint>
#include <span>

#include "core/rounding.h"

namespace pumice {

inline constexpr uint64_t kArenaAlignment = 256;  // no descriptor offset of a device is coarser
inline constexpr uint64_t kTensorGrain = 16;      // sizes of tensors: no two share a word

// Bytes that are live from the first to the last time, both included.
struct ArenaInterval {
  uint64_t bytes = 0;
  uint32_t first = 0, last = 0;
  uint64_t offset = 0;  // the result
};

// Gives every interval its offset, a multiple of kArenaAlignment: best fit, in the best of a few orders. Returns the bytes of the whole
// arena.
uint64_t place_intervals(std::span<ArenaInterval> intervals);
// The largest sum of simultaneously live intervals, each rounded up to the alignment: no arena can be smaller.
uint64_t peak_bytes(std::span<const ArenaInterval> intervals);

}  // namespace pumice

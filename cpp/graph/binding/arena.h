// The arena of temporary tensors: tensors that are not live at the same time share ranges of one buffer.
#pragma once

#include <cstdint>
#include <span>

#include "core/rounding.h"

namespace pumice {

inline constexpr uint64_t kArenaAlignment = 256;      // no device requires a coarser descriptor offset
inline constexpr uint64_t kTensorSizeAlignment = 16;  // tensor sizes are rounded up to this, so that no two tensors share a word

// A tensor's size and its lifetime, from `first` to `last` inclusive.
struct ArenaInterval {
  uint64_t bytes = 0;
  uint32_t first = 0, last = 0;
  uint64_t offset = 0;  // set by place_intervals()
};

// Assigns each interval an offset, a multiple of kArenaAlignment: best fit in several orders, keeping the smallest arena. Returns the size
// of the arena in bytes.
uint64_t place_intervals(std::span<ArenaInterval> intervals);
// Returns the largest sum of simultaneously live intervals, each rounded up to the alignment: a lower bound for the arena.
uint64_t peak_bytes(std::span<const ArenaInterval> intervals);

}  // namespace pumice

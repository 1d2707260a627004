// The arena of temporary tensors: tensors whose lifetimes do not overlap share memory of one buffer.
#pragma once

#include <cstdint>
#include <span>

#include "core/rounding.h"

namespace pumice {

inline constexpr uint64_t kArenaAlignment = 256;  // an upper bound of minStorageBufferOffsetAlignment on all devices
inline constexpr uint64_t kTensorSizeAlignment =
    16;  // tensor sizes are rounded up to this many bytes, so that no two tensors share a 32-bit word

// Size of a tensor in bytes, and its lifetime: waves `first` to `last`, inclusive.
struct ArenaInterval {
  uint64_t bytes = 0;
  uint32_t first = 0, last = 0;
  uint64_t offset = 0;  // set by assign_arena_offsets()
};

// Assigns each interval an offset that is a multiple of kArenaAlignment. Tries best fit in several orders and keeps the smallest arena.
// Returns its size in bytes.
uint64_t assign_arena_offsets(std::span<ArenaInterval> intervals);
// Returns the largest total size of intervals that are live in the same wave, each rounded up to the alignment. No arena can be smaller.
uint64_t compute_peak_bytes(std::span<const ArenaInterval> intervals);

}  // namespace pumice

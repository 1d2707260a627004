// Where tensors lie in the arena: intervals in time (waves) placed in one range of bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pumice {

// Offsets of the arena's tensors, in bytes: what every device can bind a descriptor at.
inline constexpr uint64_t kArenaGrain = 256;

// A tensor's stay in the arena: from the wave that writes it first to the last one that reads it, both included.
struct ArenaInterval {
  uint64_t bytes = 0;
  uint32_t first = 0, last = 0;
};

struct ArenaLayout {
  std::vector<uint64_t> offsets;  // of each interval, multiples of kArenaGrain
  uint64_t bytes = 0;             // of the whole
  uint64_t lower_bound_bytes = 0; // largest sum of intervals that meet in one wave, each rounded up to kArenaGrain
};

// Intervals that meet in a wave get disjoint bytes.
ArenaLayout place_intervals(std::span<const ArenaInterval> intervals);

}  // namespace pumice

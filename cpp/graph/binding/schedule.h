// Orders steps into waves; the steps of a wave do not depend on each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pumice {

// Memory that steps access. A storage inside another (a Concat slice) has that one as its parent; bytes count only for outermost storages.
struct ScheduledStorage {
  uint64_t bytes = 0;  // size in the arena; 0 for memory outside the arena
  int32_t parent = -1;
};

struct ScheduledAccess {
  uint32_t storage = 0;
  bool write = false;
  uint64_t writer = 0;  // accesses with the same non-zero id write disjoint ranges of the storage
};

// Steps in a valid sequential order. Step i makes the accesses begins[i] .. begins[i + 1].
struct ScheduleProblem {
  std::vector<ScheduledStorage> storages;
  std::vector<ScheduledAccess> accesses;
  std::vector<uint32_t> begins{0};

  size_t steps() const { return begins.size() - 1; }
  void end_step() { begins.push_back(static_cast<uint32_t>(accesses.size())); }
};

struct Schedule {
  std::vector<uint32_t> waves;  // wave of each step
  std::vector<uint32_t> order;  // steps by wave, in the given order within a wave
  uint32_t wave_count = 0;
  uint64_t peak_bytes = 0;             // largest sum of storages live in one wave
  uint64_t sequential_peak_bytes = 0;  // likewise with one step per wave, in the given order
};

// Schedules every step as early as its dependencies allow. If the peak would exceed 1.2 times that of the given order, fewer steps are put
// into a wave.
Schedule schedule(const ScheduleProblem& problem);

}  // namespace pumice

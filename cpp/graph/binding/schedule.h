// The order of steps: waves of steps that do not depend on each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pumice {

// The memory that steps touch. A storage inside another (a part of a concatenation) names its parent; bytes count for outermost ones.
struct ScheduledStorage {
  uint64_t bytes = 0;  // in the arena; 0 for memory elsewhere
  int32_t parent = -1;
};

struct ScheduledAccess {
  uint32_t storage = 0;
  bool write = false;
  uint64_t writer = 0;  // steps with the same number write parts of the storage that share no element; 0: all others
};

// Steps in an order in which they can run one after the other; step i has the accesses from begins[i] to begins[i + 1].
struct ScheduleProblem {
  std::vector<ScheduledStorage> storages;
  std::vector<ScheduledAccess> accesses;
  std::vector<uint32_t> begins{0};

  size_t steps() const { return begins.size() - 1; }
  void end_step() { begins.push_back(static_cast<uint32_t>(accesses.size())); }
};

struct Schedule {
  std::vector<uint32_t> waves;  // the wave of each step
  std::vector<uint32_t> order;  // steps by wave, and within a wave as they were given
  uint32_t wave_count = 0;
  uint64_t peak_bytes = 0;             // largest sum of storages alive in one wave
  uint64_t sequential_peak_bytes = 0;  // the same with a wave for every step, in the order given
};

// Schedules every step as early as what it needs allows. Where the peak would pass 1.2 times that of the given order, waves are narrowed.
Schedule schedule(const ScheduleProblem& problem);

}  // namespace pumice

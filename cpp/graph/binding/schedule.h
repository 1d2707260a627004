// Schedules steps in waves; the steps of one wave are independent of each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pumice {

// A memory range that steps access. A Concat slice has its output as parent. Only outermost storages count towards memory use.
struct ScheduledStorage {
  uint64_t bytes = 0;  // size in the arena; 0 for memory outside the arena
  int32_t parent = -1;
};

struct ScheduledAccess {
  uint32_t storage = 0;
  bool write = false;
  uint64_t writer = 0;  // accesses with the same nonzero writer id write disjoint ranges of the storage
};

// Steps in a valid sequential order. The accesses of step i are accesses[begins[i] .. begins[i + 1]).
struct ScheduleProblem {
  std::vector<ScheduledStorage> storages;
  std::vector<ScheduledAccess> accesses;
  std::vector<uint32_t> begins{0};

  size_t steps() const { return begins.size() - 1; }
  void end_step() { begins.push_back(static_cast<uint32_t>(accesses.size())); }
};

struct Schedule {
  std::vector<uint32_t> waves;  // for each step: index of its wave
  std::vector<uint32_t> order;  // steps sorted by wave; steps of one wave keep their original order
  uint32_t wave_count = 0;
  uint64_t peak_bytes = 0;             // largest total size of live storages in a wave
  uint64_t sequential_peak_bytes = 0;  // peak_bytes if steps run one at a time, in their original order
};

// Schedules each step as early as its dependencies allow. If the memory peak would exceed 1.2 times that of sequential execution, waves get
// fewer steps.
Schedule schedule_steps(const ScheduleProblem& problem);

}  // namespace pumice

// Which dispatches of a sequence must wait for earlier ones, from the byte ranges and the shaders' own access qualifiers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dispatch/kernel.h"

namespace pumice {

// A byte range of device memory and whether it is written.
struct MemoryAccess {
  uint64_t memory = 0;  // memory() of a Buffer or an Image
  uint64_t begin = 0, end = 0;
  bool write = false;
  Lane lane;  // its origin is an address of the memory
};

// Remembers what has been read and written since the last barrier. The same code serves recording and planning.
class HazardTracker {
 public:
  // True where the accesses conflict with those since the last barrier: the tracker then starts afresh with these alone.
  bool needs_barrier(std::span<const MemoryAccess> accesses);
  void clear() { reads_.clear(), writes_.clear(); }

 private:
  struct Interval {
    uint64_t memory, begin, end;
    Lane lane;
  };
  std::vector<Interval> reads_, writes_;
};

void append_accesses(const Dispatch& dispatch, std::vector<MemoryAccess>& accesses);

}  // namespace pumice

// Finds which dispatches of a sequence must wait for earlier ones, from the byte ranges and the shaders' own access qualifiers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dispatch/kernel/kernel.h"

namespace pumice {

// A byte range of device memory and whether it is written.
struct MemoryAccess {
  uint64_t memory = 0;  // memory() of a Buffer or an Image
  uint64_t begin = 0, end = 0;
  bool write = false;
  Lane lane;           // its origin is an address of the memory
  bool guard = false;  // a word or counts that tell before a dispatch whether it runs
};

enum class Barrier { none, shaders, guards };  // guards: what guards dispatches is read after it, which costs more than shaders alone

// Remembers what has been read and written since the last barrier. The same code serves recording and planning.
class HazardTracker {
 public:
  // `guards`: memory() of all buffers that hold guards.
  explicit HazardTracker(std::vector<uint64_t> guards = {}) : guards_(std::move(guards)) {}
  // The barrier that the accesses need: `none` unless they conflict with those since the last barrier. The tracker then starts afresh with
  // these alone.
  Barrier needed(std::span<const MemoryAccess> accesses);
  void clear() { reads_.clear(), writes_.clear(); }

 private:
  struct Interval {
    uint64_t memory, begin, end;
    Lane lane;
  };
  std::vector<Interval> reads_, writes_;
  std::vector<Interval> unseen_;  // writes of guards since the last barrier for guards
  std::vector<uint64_t> guards_;
};

void append_accesses(const Dispatch& dispatch, std::vector<MemoryAccess>& accesses);

}  // namespace pumice

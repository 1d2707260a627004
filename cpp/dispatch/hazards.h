// Determines which dispatches need a barrier, from byte ranges and the access qualifiers in shaders.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dispatch/kernel/kernel.h"

namespace pumice {

// An access to a byte range of device memory.
struct MemoryAccess {
  uint64_t memory = 0;  // memory() of a Buffer or an Image
  uint64_t begin = 0, end = 0;
  bool write = false;
  InterleavedRange interleaved;  // its `origin` is relative to the memory, not to a buffer
  bool guard = false;            // a read of a predicate or of group counts, before the dispatch starts
};

enum class Barrier { none, shaders, guards };  // `guards` also covers reads of predicates and group counts, which costs more

// Tracks reads and writes since the last barrier, for recording and for planning.
class HazardTracker {
 public:
  // `guards`: memory() of all buffers that contain predicates or group counts.
  explicit HazardTracker(std::vector<uint64_t> guards = {}) : guards_(std::move(guards)) {}
  // Returns the barrier that the accesses need, and records them: `none` unless they conflict with accesses since the last barrier, or read
  // guards written since the last barrier that covers guards. A barrier removes all earlier accesses, but `shaders` keeps writes to guards.
  Barrier add_accesses(std::span<const MemoryAccess> accesses);
  void clear() { reads_.clear(), writes_.clear(); }

 private:
  struct AccessInterval {
    uint64_t memory, begin, end;
    InterleavedRange interleaved;
  };
  std::vector<AccessInterval> reads_, writes_;
  std::vector<AccessInterval> pending_guard_writes_;  // writes to guards since the last barrier that covers guards
  std::vector<uint64_t> guards_;
};

void append_accesses(const Dispatch& dispatch, std::vector<MemoryAccess>& accesses);

}  // namespace pumice

// A pool of memory for values whose shapes are known only at run time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "dispatch/staging_slot.h"

namespace pumice {

// How the host uses the memory: not at all, for uploads, or for readbacks.
enum class StagingSlotUse : uint8_t { device, upload, readback };

// Memory may be reused while the device still works on it, because submissions run in order. Not thread-safe.
class StagingSlotPool {
 public:
  explicit StagingSlotPool(std::shared_ptr<Context> context) : context_(std::move(context)) {}
  // Returns memory of at least `bytes` bytes. The same sequence of requests and releases returns the same memory, so that recordings can be
  // replayed.
  std::shared_ptr<const StagingSlot> acquire(uint64_t bytes, StagingSlotUse use);
  // Fills all free memory with a 32-bit word. The device must not be working on it.
  void fill_free_slots(uint32_t word, const InterruptCallback& interrupted);
  // Frees memory that is not in use and was not acquired since the last call.
  void trim();

 private:
  struct PooledSlot {
    std::shared_ptr<const StagingSlot> slot;
    bool used = true;
  };
  StagingSlot make_device_slot(uint64_t bytes) const;

  std::shared_ptr<Context> context_;
  std::map<std::pair<StagingSlotUse, uint64_t>, std::vector<PooledSlot>> entries_;  // keyed by use and by size in bytes
};

}  // namespace pumice

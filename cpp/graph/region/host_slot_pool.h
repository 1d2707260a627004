// Memory for the values of executions whose shapes are known only at run time, reused once it is free.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "dispatch/host_slot.h"

namespace pumice {

// How the host uses the memory: not at all, for uploads, or for readback.
enum class HostSlotUse : uint8_t { device, upload, readback };

// A pool of memory for executions. Memory may be reused while the device still works on it, since submissions run in order. Not
// thread-safe.
class HostSlotPool {
 public:
  explicit HostSlotPool(std::shared_ptr<Context> context) : context_(std::move(context)) {}
  // Returns memory of at least `bytes` bytes. The same sequence of requests and releases returns the same memory, so recordings can be
  // replayed.
  std::shared_ptr<const HostSlot> take(uint64_t bytes, HostSlotUse use);
  // Fills all free memory with a word. No work may be in flight on it.
  void fill_free(uint32_t word, const Interrupted& interrupted);
  // Frees memory that is not in use and has not been taken since the last call.
  void trim();

 private:
  struct Entry {
    std::shared_ptr<const HostSlot> slot;
    bool used = true;
  };
  HostSlot device_slot(uint64_t bytes) const;

  std::shared_ptr<Context> context_;
  std::map<std::pair<HostSlotUse, uint64_t>, std::vector<Entry>> entries_;  // keyed by use and size in bytes
};

}  // namespace pumice

// Memory for the values of executions whose shapes come up as they run: taken from what nobody holds any more.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "dispatch/host_slot.h"

namespace pumice {

// The user of memory besides the device.
enum class HostSlotUse : uint8_t { device, upload, readback };

// Memory of executions, shared and taken again. It may be taken again while the device still works on it, since submissions run in order.
// Not thread-safe.
class HostSlotPool {
 public:
  explicit HostSlotPool(std::shared_ptr<Context> context) : context_(std::move(context)) {}
  // Memory of at least that many bytes. The same requests and drops get the same memory again, so that recordings can be replayed.
  std::shared_ptr<const HostSlot> take(uint64_t bytes, HostSlotUse use);
  // Repeats a word over all memory that nobody holds. No work may be in flight on it.
  void fill_free(uint32_t word, const Interrupted& interrupted);
  // Frees what nobody holds and nobody has taken since the last call.
  void trim();

 private:
  struct Entry {
    std::shared_ptr<const HostSlot> slot;
    bool used = true;
  };
  HostSlot device_slot(uint64_t bytes) const;

  std::shared_ptr<Context> context_;
  std::map<std::pair<HostSlotUse, uint64_t>, std::vector<Entry>> entries_;  // by use and bytes
};

}  // namespace pumice

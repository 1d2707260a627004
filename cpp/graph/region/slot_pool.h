// Memory for the values of executions whose shapes come up as they run: taken from what nobody holds any more.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "dispatch/host_slot.h"

namespace pumice {

// Who the memory is for, besides the device.
enum class SlotUse : uint8_t { device, upload, readback };

// Not thread-safe. Memory may be taken again while the device still works on it: submissions run in order.
class SlotPool {
 public:
  explicit SlotPool(std::shared_ptr<Context> context) : context_(std::move(context)) {}
  // At least that many bytes. The same memory comes again where the same requests and drops do.
  std::shared_ptr<const HostSlot> take(uint64_t bytes, SlotUse use);
  // Frees what nobody holds and nobody has taken since the last call.
  void trim();

 private:
  struct Entry {
    std::shared_ptr<const HostSlot> slot;
    bool used = true;
  };
  HostSlot device_slot(uint64_t bytes) const;

  std::shared_ptr<Context> context_;
  std::map<std::pair<SlotUse, uint64_t>, std::vector<Entry>> entries_;  // by use and bytes
};

}  // namespace pumice

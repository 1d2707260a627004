// The way of a large slot's bytes to the device or back, in chunks that the host copies while the device moves others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dispatch/host_slot.h"
#include "dispatch/recording.h"

namespace pumice {

// The chunks of one slot, recorded once and submitted at each execution. Memory that the device reaches by itself (device/host_memory.h) is
// not copied by the host. Not thread-safe.
class HostSlotTransfer {
 public:
  // Whether a slot is worth it: its bytes are copied on the device, and are several chunks.
  static bool is_for(const HostSlot& slot);
  HostSlotTransfer(const HostSlot& slot, bool to_device);

  // Copies bytes to the host's part, and submits each chunk to the device as soon as it is there. `stays`: the bytes are not changed before
  // the device has read them.
  void write(std::span<const std::byte> source, bool stays);
  // Submits all chunks from the device. They begin when what was submitted earlier has finished. `target`: what read() will be given, so
  // that the device may write there itself; empty where that is not known.
  void begin_read(std::span<std::byte> target);
  // Copies the bytes of each chunk as soon as it has come. `interrupted` as in Context::wait.
  void read(std::span<std::byte> target, const Interrupted& interrupted) const;
  uint64_t last_submission() const { return ids_.empty() ? 0 : ids_.back(); }

 private:
  uint64_t end_of(size_t count) const;  // the bytes of so many chunks
  const std::shared_ptr<Context>& context() const { return slot_.device->context(); }

  HostSlot slot_;
  uint64_t chunk_;
  std::vector<std::shared_ptr<Recording>> chunks_;
  std::vector<uint64_t> ids_;  // of the last executions, by chunk; one of all where the device reached the memory
  bool is_direct_ = false;     // whether the device writes the target itself
};

}  // namespace pumice

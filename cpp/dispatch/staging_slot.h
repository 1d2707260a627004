// Memory that the host and a recording share: one host-visible buffer, or a host and a device buffer with copies between them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "device/buffer.h"

namespace pumice {

struct StagingSlot {
  std::shared_ptr<Buffer> host, device;
  std::byte* bytes = nullptr;  // host address of the slot
  uint64_t offset = 0;         // offset of the slot, the same in both buffers
  uint64_t size = 0;

  bool needs_copy() const { return host != device && size > 0; }
  BufferRange host_range() const { return {host, offset, size}; }
  BufferRange device_range() const { return {device, offset, size}; }
};

// Creates a slot. `heap`: upload or readback, for the host buffer. `device`: existing device memory.
StagingSlot make_staging_slot(const std::shared_ptr<Context>& context, uint64_t bytes, Heap heap, std::shared_ptr<Buffer> device = {});
// Fills all whole words of the slots on host and device. No work in flight may use them.
void fill(std::span<const StagingSlot> slots, uint32_t word, const InterruptCallback& interrupted = {});
// Creates slots of these sizes; small slots share a buffer.
std::vector<StagingSlot> make_staging_slots(const std::shared_ptr<Context>& context, std::span<const uint64_t> sizes, Heap heap);
// Returns the copies from the slots' host buffers to their device buffers, or the reverse. Slots that are adjacent in both buffers share a
// copy.
std::vector<std::pair<BufferRange, BufferRange>> collect_copies(std::span<const StagingSlot> slots, bool to_device);

}  // namespace pumice

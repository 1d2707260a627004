// Memory shared between host and recording: one buffer if device memory is host-visible, else two buffers and a copy.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "device/buffer.h"

namespace pumice {

struct HostSlot {
  std::shared_ptr<Buffer> host, device;
  std::byte* bytes = nullptr;  // host address
  uint64_t offset = 0;         // offset of the slot, the same in both buffers
  uint64_t size = 0;

  bool is_copied() const { return host != device && size > 0; }
  BufferRange host_range() const { return {host, offset, size}; }
  BufferRange device_range() const { return {device, offset, size}; }
};

// Creates a slot. `heap`: upload or readback, for the host buffer. `device`: existing device memory.
HostSlot make_host_slot(const std::shared_ptr<Context>& context, uint64_t bytes, Heap heap, std::shared_ptr<Buffer> device = {});
// Fills all whole words of the slots on host and device. No work in flight may use them.
void fill(std::span<const HostSlot> slots, uint32_t word, const Interrupted& interrupted = {});
// Creates slots of these sizes; small ones share a buffer.
std::vector<HostSlot> make_host_slots(const std::shared_ptr<Context>& context, std::span<const uint64_t> sizes, Heap heap);
// Returns the copies from the slots' host buffers to their device buffers, or the reverse. Slots that are adjacent in both buffers share a
// copy.
std::vector<std::pair<BufferRange, BufferRange>> collect_copies(std::span<const HostSlot> slots, bool to_device);

}  // namespace pumice

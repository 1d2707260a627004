// Memory that the host fills or reads and a recording works on: one buffer where the host sees the device's memory, else two and a copy.
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
  std::byte* bytes = nullptr;  // the host's memory
  uint64_t offset = 0;         // in both
  uint64_t size = 0;

  bool is_copied() const { return host != device && size > 0; }
  BufferRange host_range() const { return {host, offset, size}; }
  BufferRange device_range() const { return {device, offset, size}; }
};

// Makes a slot. `heap`: upload or readback, where the host's part lies. `device`: memory that is there already.
HostSlot make_host_slot(const std::shared_ptr<Context>& context, uint64_t bytes, Heap heap, std::shared_ptr<Buffer> device = {});
// Repeats a word over all of the slots' whole words, on the host and on the device. No work may be in flight on them.
void fill(std::span<const HostSlot> slots, uint32_t word, const Interrupted& interrupted = {});
// Slots of these sizes; small ones lie in one buffer side by side.
std::vector<HostSlot> make_host_slots(const std::shared_ptr<Context>& context, std::span<const uint64_t> sizes, Heap heap);
// The copies from the host's parts of slots to the device's, or back. Slots that are neighbours in both share one copy.
std::vector<std::pair<BufferRange, BufferRange>> copies_of(std::span<const HostSlot> slots, bool to_device);

}  // namespace pumice

#include "graph/region/host_slot_pool.h"

#include <algorithm>
#include <bit>

#include "core/rounding.h"

namespace pumice {
namespace {

constexpr uint64_t kSizeAlignment = 256;

// Rounds a size up so that growing sizes share memory; wastes a quarter at most.
uint64_t size_class(uint64_t bytes) {
  return round_up(bytes, std::max(kSizeAlignment, std::bit_floor(bytes) / 4));
}

}  // namespace

// If the default heap is host-visible (unified memory), later reads need no copy.
HostSlot HostSlotPool::device_slot(uint64_t bytes) const {
  HostSlot slot;
  slot.device = slot.host = Buffer::create(context_, bytes);
  slot.size = bytes;
  if (slot.device->mappable()) slot.bytes = slot.device->map();
  return slot;
}

std::shared_ptr<const HostSlot> HostSlotPool::take(uint64_t bytes, HostSlotUse use) {
  const uint64_t size = bytes == 0 ? 0 : size_class(bytes);
  auto& entries = entries_[{use, size}];
  for (Entry& entry : entries)
    if (entry.slot.use_count() == 1) {
      entry.used = true;
      return entry.slot;
    }
  HostSlot slot;
  if (use == HostSlotUse::device)
    slot = device_slot(size);
  else
    slot = make_host_slot(context_, size, use == HostSlotUse::upload ? Heap::upload : Heap::readback);
  entries.push_back({std::make_shared<const HostSlot>(std::move(slot))});
  return entries.back().slot;
}

void HostSlotPool::fill_free(uint32_t word, const Interrupted& interrupted) {
  std::vector<HostSlot> free;
  for (const auto& [key, entries] : entries_)
    for (const Entry& entry : entries)
      if (entry.slot.use_count() == 1) free.push_back(*entry.slot);
  fill(free, word, interrupted);
}

void HostSlotPool::trim() {
  for (auto& [key, entries] : entries_) {
    std::erase_if(entries, [](const Entry& entry) { return !entry.used && entry.slot.use_count() == 1; });
    for (Entry& entry : entries) entry.used = false;
  }
}

}  // namespace pumice

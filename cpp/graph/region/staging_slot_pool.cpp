#include "graph/region/staging_slot_pool.h"

#include <algorithm>
#include <bit>

#include "core/rounding.h"

namespace pumice {
namespace {

constexpr uint64_t kSizeAlignment = 256;

// Rounds a size up to a size class, so that tensors of growing size reuse memory. Wastes at most a quarter.
uint64_t round_to_size_class(uint64_t bytes) {
  return round_up(bytes, std::max(kSizeAlignment, std::bit_floor(bytes) / 4));
}

}  // namespace

// Allocates device memory. If the default heap is host-visible (unified memory), it is mapped, and later reads need no copy.
StagingSlot StagingSlotPool::make_device_slot(uint64_t bytes) const {
  StagingSlot slot;
  slot.device = slot.host = Buffer::create(context_, bytes);
  slot.size = bytes;
  if (slot.device->mappable()) slot.bytes = slot.device->map();
  return slot;
}

std::shared_ptr<const StagingSlot> StagingSlotPool::acquire(uint64_t bytes, StagingSlotUse use) {
  const uint64_t size = bytes == 0 ? 0 : round_to_size_class(bytes);
  auto& entries = entries_[{use, size}];
  for (PooledSlot& entry : entries)
    if (entry.slot.use_count() == 1) {
      entry.used = true;
      return entry.slot;
    }
  StagingSlot slot;
  if (use == StagingSlotUse::device)
    slot = make_device_slot(size);
  else
    slot = make_staging_slot(context_, size, use == StagingSlotUse::upload ? Heap::upload : Heap::readback);
  entries.push_back({std::make_shared<const StagingSlot>(std::move(slot))});
  return entries.back().slot;
}

void StagingSlotPool::fill_free_slots(uint32_t word, const InterruptCallback& interrupted) {
  std::vector<StagingSlot> free;
  for (const auto& [key, entries] : entries_)
    for (const PooledSlot& entry : entries)
      if (entry.slot.use_count() == 1) free.push_back(*entry.slot);
  fill(free, word, interrupted);
}

void StagingSlotPool::trim() {
  for (auto& [key, entries] : entries_) {
    std::erase_if(entries, [](const PooledSlot& entry) { return !entry.used && entry.slot.use_count() == 1; });
    for (PooledSlot& entry : entries) entry.used = false;
  }
}

}  // namespace pumice

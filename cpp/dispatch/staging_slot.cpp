#include "dispatch/staging_slot.h"

#include <algorithm>
#include <cstring>

#include "core/rounding.h"

namespace pumice {
namespace {

constexpr uint64_t kMaxSharedSlot = 1 << 20;  // largest slot in bytes that shares a buffer
constexpr uint64_t kSlotAlignment = 256;

}  // namespace

StagingSlot make_staging_slot(const std::shared_ptr<Context>& context, uint64_t bytes, Heap heap, std::shared_ptr<Buffer> device) {
  StagingSlot slot;
  slot.device = device ? std::move(device) : Buffer::create(context, bytes);
  slot.host = slot.device->mappable() ? slot.device : Buffer::create(context, bytes, heap);
  slot.bytes = slot.host->map();
  slot.size = slot.device->bytes();
  return slot;
}

void fill(std::span<const StagingSlot> slots, uint32_t word, const InterruptCallback& interrupted) {
  std::vector<BufferRange> filled;
  for (const StagingSlot& slot : slots) {
    const uint64_t bytes = slot.size / sizeof(word) * sizeof(word);
    if (slot.bytes)
      for (uint64_t at = 0; at < bytes; at += sizeof(word)) std::memcpy(slot.bytes + at, &word, sizeof(word));
    if (slot.needs_copy()) filled.push_back({slot.device, slot.offset, bytes});
  }
  for (const BufferRange& range : filled) fill(range, word, interrupted);
}

std::vector<StagingSlot> make_staging_slots(const std::shared_ptr<Context>& context, std::span<const uint64_t> sizes, Heap heap) {
  const uint64_t grain = std::max(kSlotAlignment, context->limit("minStorageBufferOffsetAlignment"));
  uint64_t total = 0;
  for (const uint64_t size : sizes)
    if (size <= kMaxSharedSlot) total += round_up(size, grain);
  const StagingSlot shared = make_staging_slot(context, total, heap);
  std::vector<StagingSlot> slots;
  uint64_t offset = 0;
  for (const uint64_t size : sizes) {
    if (size > kMaxSharedSlot) {
      slots.push_back(make_staging_slot(context, size, heap));
      continue;
    }
    slots.push_back({shared.host, shared.device, shared.bytes ? shared.bytes + offset : nullptr, offset, size});
    offset += round_up(size, grain);
  }
  return slots;
}

std::vector<std::pair<BufferRange, BufferRange>> collect_copies(std::span<const StagingSlot> slots, bool to_device) {
  std::vector<std::pair<BufferRange, BufferRange>> copies;
  for (const StagingSlot& slot : slots) {
    if (!slot.needs_copy()) continue;
    const BufferRange from = to_device ? slot.host_range() : slot.device_range(), to = to_device ? slot.device_range() : slot.host_range();
    if (copies.empty() || copies.back().first.buffer != from.buffer) {
      copies.emplace_back(from, to);
      continue;
    }
    for (BufferRange* range : {&copies.back().first, &copies.back().second}) range->bytes = slot.offset + slot.size - range->offset;
  }
  return copies;
}

}  // namespace pumice

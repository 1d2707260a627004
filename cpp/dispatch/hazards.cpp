#include "dispatch/hazards.h"

#include <algorithm>

namespace pumice {
namespace {

bool are_disjoint(const InterleavedRange& a, const InterleavedRange& b) {
  if (a.writer != 0 && a.writer == b.writer && a.origin == b.origin && a.part != b.part) return true;
  return a.period != 0 && a.period == b.period && a.origin == b.origin && (a.end <= b.begin || b.end <= a.begin);
}

}  // namespace

Barrier HazardTracker::add_accesses(std::span<const MemoryAccess> accesses) {
  const auto overlaps = [](const std::vector<AccessInterval>& intervals, const MemoryAccess& access) {
    return std::any_of(intervals.begin(), intervals.end(), [&](const AccessInterval& other) {
      return other.memory == access.memory && other.begin < access.end && access.begin < other.end;
    });
  };
  // Disjoint interleaved ranges may be written concurrently. Reads of them still need a barrier, because the validation layer only tracks
  // whole ranges.
  const auto overwrites = [&](const MemoryAccess& access) {
    return std::any_of(writes_.begin(), writes_.end(), [&](const AccessInterval& other) {
      return other.memory == access.memory && other.begin < access.end && access.begin < other.end &&
             !are_disjoint(other.interleaved, access.interleaved);
    });
  };
  const bool conflict = std::any_of(accesses.begin(), accesses.end(), [&](const MemoryAccess& access) {
    return access.write ? overwrites(access) || overlaps(reads_, access) : overlaps(writes_, access);
  });
  // A shader barrier does not make writes visible to the stages that read guards, so such writes stay in pending_guard_writes_ until a
  // guard barrier.
  const bool guard_conflict =
      std::ranges::any_of(accesses, [&](const MemoryAccess& access) { return access.guard && overlaps(pending_guard_writes_, access); });
  if (conflict || guard_conflict) clear();
  if (guard_conflict) pending_guard_writes_.clear();
  for (const auto& access : accesses) {
    const AccessInterval interval{access.memory, access.begin, access.end, access.interleaved};
    (access.write ? writes_ : reads_).push_back(interval);
    if (access.write && std::ranges::find(guards_, access.memory) != guards_.end()) pending_guard_writes_.push_back(interval);
  }
  return guard_conflict ? Barrier::guards : conflict ? Barrier::shaders : Barrier::none;
}

void append_accesses(const Dispatch& dispatch, std::vector<MemoryAccess>& accesses) {
  const auto& bindings = dispatch.kernel->interface().bindings;
  // In packed modes, and with elements of 1 or 2 bytes, interleaved ranges may share words, which are then written with atomics. The
  // validation layer treats atomics as reads as well and requires a barrier. Kernels declare the sub-word data that they write as
  // read-write.
  const StorageType storage = dispatch.kernel->shader()->options.storage;
  const bool shares_words = storage == StorageType::fp16_packed || storage == StorageType::bf16_packed;
  for (size_t i = 0; i < bindings.size(); ++i) {
    const auto& range = dispatch.buffers[i];
    if (!range.buffer || range.bytes == 0) continue;
    const uint64_t begin = range.buffer->memory_offset() + range.offset;
    MemoryAccess& access =
        accesses.emplace_back(range.buffer->memory(), begin, begin + range.bytes, bindings[i].access != ResourceAccess::read);
    if (dispatch.interleaved.empty() || shares_words || bindings[i].access == ResourceAccess::read_write) continue;
    access.interleaved = dispatch.interleaved[i];
    access.interleaved.origin += range.buffer->memory_offset();
  }
  if (const BufferRange& guard = dispatch.guard; guard.buffer) {
    const uint64_t begin = guard.buffer->memory_offset() + guard.offset;
    accesses.push_back({guard.buffer->memory(), begin, begin + guard.bytes, false, {}, true});
  }
  for (size_t i = 0; i < dispatch.images.size(); ++i) {
    const Image& image = *dispatch.images[i];
    const bool write = dispatch.kernel->interface().images[i].access != ResourceAccess::read;
    accesses.push_back({image.memory(), image.memory_offset(), image.memory_offset() + image.memory_bytes(), write, {}});
  }
}

}  // namespace pumice

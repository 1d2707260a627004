#include "dispatch/hazards.h"

#include <algorithm>

namespace pumice {
namespace {

bool are_apart(const Lane& a, const Lane& b) {
  if (a.writer != 0 && a.writer == b.writer && a.origin == b.origin && a.part != b.part) return true;
  return a.period != 0 && a.period == b.period && a.origin == b.origin && (a.end <= b.begin || b.end <= a.begin);
}

}  // namespace

Barrier HazardTracker::needed(std::span<const MemoryAccess> accesses) {
  const auto overlaps = [](const std::vector<Interval>& intervals, const MemoryAccess& access) {
    return std::any_of(intervals.begin(), intervals.end(), [&](const Interval& other) {
      return other.memory == access.memory && other.begin < access.end && access.begin < other.end;
    });
  };
  // Parts that interleave may be written side by side; a read of one waits, as the validation layer, which knows ranges alone, wants it.
  const auto overwrites = [&](const MemoryAccess& access) {
    return std::any_of(writes_.begin(), writes_.end(), [&](const Interval& other) {
      return other.memory == access.memory && other.begin < access.end && access.begin < other.end && !are_apart(other.lane, access.lane);
    });
  };
  const bool conflict = std::any_of(accesses.begin(), accesses.end(), [&](const MemoryAccess& access) {
    return access.write ? overwrites(access) || overlaps(reads_, access) : overlaps(writes_, access);
  });
  // A barrier for shaders does not show writes to the stages that read guards, so such writes stay unseen until a barrier for guards.
  const bool guard_conflict =
      std::ranges::any_of(accesses, [&](const MemoryAccess& access) { return access.guard && overlaps(unseen_, access); });
  if (conflict || guard_conflict) clear();
  if (guard_conflict) unseen_.clear();
  for (const auto& access : accesses) {
    const Interval interval{access.memory, access.begin, access.end, access.lane};
    (access.write ? writes_ : reads_).push_back(interval);
    if (access.write && std::ranges::find(guards_, access.memory) != guards_.end()) unseen_.push_back(interval);
  }
  return guard_conflict ? Barrier::guards : conflict ? Barrier::shaders : Barrier::none;
}

void append_accesses(const Dispatch& dispatch, std::vector<MemoryAccess>& accesses) {
  const auto& bindings = dispatch.kernel->interface().bindings;
  // Parts in the packed modes, and parts of elements of one or two bytes, may share words, which are then stored to atomically: the
  // validation layer takes that for a read as well, after which it wants a barrier. Kernels declare what they read and write in words of
  // bytes.
  const Storage storage = dispatch.kernel->shader()->options.storage;
  const bool shares_words = storage == Storage::fp16_packed || storage == Storage::bf16_packed;
  for (size_t i = 0; i < bindings.size(); ++i) {
    const auto& range = dispatch.buffers[i];
    if (!range.buffer || range.bytes == 0) continue;
    const uint64_t begin = range.buffer->memory_offset() + range.offset;
    MemoryAccess& access = accesses.emplace_back(range.buffer->memory(), begin, begin + range.bytes, bindings[i].access != Access::read);
    if (dispatch.lanes.empty() || shares_words || bindings[i].access == Access::read_write) continue;
    access.lane = dispatch.lanes[i];
    access.lane.origin += range.buffer->memory_offset();
  }
  if (const BufferRange& guard = dispatch.guard; guard.buffer) {
    const uint64_t begin = guard.buffer->memory_offset() + guard.offset;
    accesses.push_back({guard.buffer->memory(), begin, begin + guard.bytes, false, {}, true});
  }
  for (size_t i = 0; i < dispatch.images.size(); ++i) {
    const Image& image = *dispatch.images[i];
    const bool write = dispatch.kernel->interface().images[i].access != Access::read;
    accesses.push_back({image.memory(), image.memory_offset(), image.memory_offset() + image.memory_bytes(), write, {}});
  }
}

}  // namespace pumice

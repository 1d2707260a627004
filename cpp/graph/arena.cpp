#include "graph/arena.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace pumice {
namespace {

bool meet(const ArenaInterval& a, const ArenaInterval& b) { return a.first <= b.last && b.first <= a.last; }

// The smallest gap between the placed intervals that are live at the same time, else behind the last of them. `placed`: by offset.
uint64_t best_offset(const std::vector<const ArenaInterval*>& placed, const ArenaInterval& wanted) {
  const uint64_t bytes = round_up(wanted.bytes, kArenaAlignment);
  uint64_t end = 0, best = 0, best_gap = ~uint64_t{0};
  for (const ArenaInterval* other : placed) {
    if (!meet(*other, wanted)) continue;
    if (other->offset > end && other->offset - end >= bytes && other->offset - end < best_gap) {
      best_gap = other->offset - end;
      best = end;
    }
    end = std::max(end, other->offset + round_up(other->bytes, kArenaAlignment));
  }
  return best_gap == ~uint64_t{0} ? end : best;
}

}  // namespace

uint64_t place_intervals(std::span<ArenaInterval> intervals) {
  std::vector<uint32_t> order(intervals.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return intervals[a].bytes > intervals[b].bytes; });
  std::vector<const ArenaInterval*> placed;
  placed.reserve(intervals.size());
  uint64_t total = 0;
  for (const uint32_t i : order) {
    ArenaInterval& interval = intervals[i];
    if (interval.bytes == 0) continue;
    interval.offset = best_offset(placed, interval);
    total = std::max(total, interval.offset + round_up(interval.bytes, kArenaAlignment));
    placed.insert(std::upper_bound(placed.begin(), placed.end(), &interval, [](const auto* a, const auto* b) { return a->offset < b->offset; }), &interval);
  }
  return total;
}

uint64_t peak_bytes(std::span<const ArenaInterval> intervals) {
  uint32_t end = 0;
  for (const auto& interval : intervals) end = std::max(end, interval.last + 1);
  std::vector<int64_t> change(end + 1, 0);
  for (const auto& interval : intervals) {
    const auto bytes = static_cast<int64_t>(round_up(interval.bytes, kArenaAlignment));
    change[interval.first] += bytes;
    change[interval.last + 1] -= bytes;
  }
  int64_t live = 0, peak = 0;
  for (const int64_t step : change) peak = std::max(peak, live += step);
  return static_cast<uint64_t>(peak);
}

}  // namespace pumice

#include "graph/binding/arena.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>
#include <vector>

namespace pumice {
namespace {

constexpr double kGoodEnoughRatio = 1.02;  // stop trying orders once the arena is within this factor of the lower bound

uint64_t align_to_arena(uint64_t bytes) {
  return round_up(bytes, kArenaAlignment);
}

// An interval with its assigned byte range [begin, end) and its lifetime [first, last].
struct PlacedInterval {
  uint64_t begin, end;
  uint32_t first, last;
};

// Placed intervals in buckets of waves, so that a search visits only intervals with a similar lifetime.
class PlacedIntervalIndex {
 public:
  void add(const PlacedInterval& placed) {
    const size_t end = placed.last / kWavesPerBucket + 1;
    if (buckets_.size() < end) buckets_.resize(end);
    for (size_t i = placed.first / kWavesPerBucket; i < end; ++i) buckets_[i].push_back(static_cast<uint32_t>(all_.size()));
    all_.push_back(placed);
    last_round_.push_back(0);
  }

  // Returns the placed intervals whose lifetimes overlap this one, sorted by offset.
  const std::vector<PlacedInterval>& find_overlapping(const ArenaInterval& interval) {
    overlapping_.clear();
    ++round_;
    for (size_t i = interval.first / kWavesPerBucket; i < std::min<size_t>(interval.last / kWavesPerBucket + 1, buckets_.size()); ++i)
      for (const uint32_t at : buckets_[i]) {
        const PlacedInterval& other = all_[at];
        if (last_round_[at] == round_ || other.last < interval.first || interval.last < other.first) continue;
        last_round_[at] = round_;
        overlapping_.push_back(other);
      }
    std::sort(overlapping_.begin(), overlapping_.end(), [](const PlacedInterval& a, const PlacedInterval& b) { return a.begin < b.begin; });
    return overlapping_;
  }

 private:
  static constexpr uint32_t kWavesPerBucket = 16;
  std::vector<PlacedInterval> all_, overlapping_;
  std::vector<uint32_t> last_round_;  // last search that found each interval, to skip duplicates
  std::vector<std::vector<uint32_t>> buckets_;
  uint32_t round_ = 0;
};

// Returns the offset of the smallest gap of at least `bytes` bytes, or the end of the last interval if no gap is large enough.
uint64_t find_tightest_gap(const std::vector<PlacedInterval>& placed, uint64_t bytes) {
  uint64_t reached = 0, best = 0, tightest = UINT64_MAX;
  for (const auto& other : placed) {
    if (other.begin >= reached + bytes && other.begin - reached < tightest) {
      best = reached;
      tightest = other.begin - reached;
    }
    reached = std::max(reached, other.end);
  }
  return tightest == UINT64_MAX ? reached : best;
}

struct ArenaLayout {
  std::vector<uint64_t> offsets;
  uint64_t bytes = 0;
};

ArenaLayout place_in_order(std::span<const ArenaInterval> intervals, const std::vector<uint32_t>& order) {
  ArenaLayout layout;
  layout.offsets.resize(intervals.size());
  PlacedIntervalIndex placed_intervals;
  for (const uint32_t i : order) {
    const ArenaInterval& interval = intervals[i];
    const uint64_t bytes = align_to_arena(interval.bytes);
    if (bytes == 0) continue;
    layout.offsets[i] = find_tightest_gap(placed_intervals.find_overlapping(interval), bytes);
    placed_intervals.add({layout.offsets[i], layout.offsets[i] + bytes, interval.first, interval.last});
    layout.bytes = std::max(layout.bytes, layout.offsets[i] + bytes);
  }
  return layout;
}

}  // namespace

uint64_t compute_peak_bytes(std::span<const ArenaInterval> intervals) {
  uint32_t waves = 0;
  for (const auto& interval : intervals) waves = std::max(waves, interval.last + 1);
  std::vector<int64_t> change(waves + 1, 0);
  for (const auto& interval : intervals) {
    change[interval.first] += static_cast<int64_t>(align_to_arena(interval.bytes));
    change[interval.last + 1] -= static_cast<int64_t>(align_to_arena(interval.bytes));
  }
  int64_t live = 0, peak = 0;
  for (const int64_t step : change) peak = std::max(peak, live += step);
  return static_cast<uint64_t>(peak);
}

uint64_t assign_arena_offsets(std::span<ArenaInterval> intervals) {
  const auto bytes = [&](uint32_t i) { return intervals[i].bytes; };
  const auto span = [&](uint32_t i) { return uint64_t{intervals[i].last} - intervals[i].first + 1; };
  using Key = std::array<uint64_t, 2>;  // intervals are placed in descending order of their keys
  const std::function<Key(uint32_t)> orders[] = {
      [&](uint32_t i) { return Key{bytes(i), span(i)}; },
      [&](uint32_t i) { return Key{bytes(i) * span(i), bytes(i)}; },
      [&](uint32_t i) { return Key{UINT32_MAX - intervals[i].first, bytes(i)}; },
  };
  const uint64_t bound = compute_peak_bytes(intervals);
  ArenaLayout best;
  std::vector<std::pair<Key, uint32_t>> sorted(intervals.size());
  std::vector<uint32_t> order(intervals.size());
  for (const auto& key : orders) {
    for (uint32_t i = 0; i < sorted.size(); ++i) sorted[i] = {key(i), i};
    std::sort(sorted.begin(), sorted.end(),
              [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
    std::transform(sorted.begin(), sorted.end(), order.begin(), [](const auto& entry) { return entry.second; });
    ArenaLayout layout = place_in_order(intervals, order);
    if (best.offsets.empty() || layout.bytes < best.bytes) best = std::move(layout);
    if (static_cast<double>(best.bytes) <= kGoodEnoughRatio * static_cast<double>(bound)) break;
  }
  for (size_t i = 0; i < intervals.size(); ++i) intervals[i].offset = best.offsets[i];
  return best.bytes;
}

}  // namespace pumice

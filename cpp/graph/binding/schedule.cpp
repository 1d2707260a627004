#include "graph/binding/schedule.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <span>

namespace pumice {
namespace {

constexpr double kMaxPeakRatio = 1.2;  // maximum memory peak, as a multiple of the sequential peak
// Bytes that a wave may always use. A single-token decode step has little live memory, so a limit of 1.2 times its peak would serialise
// its steps, at 1.9 us each on an H200.
constexpr double kFreeBytes = 1 << 20;
// Memory budgets of a wave, as multiples of the sequential peak, tried in this order. A wave always includes its first step, so a schedule
// may exceed its budget. The last resort is the original order.
constexpr double kBudgets[] = {1.2, 1.1, 1.0};
constexpr size_t kMaxSkippedSteps = 32;  // maximum number of ready steps skipped in search of one that fits into the budget

using Index = uint32_t;

// Maps each storage to its outermost parent and to the storages inside it.
class StorageTree {
 public:
  explicit StorageTree(const std::vector<ScheduledStorage>& storages)
      : storages_(storages), roots_(storages.size()), descendants_(storages.size()) {
    for (Index i = 0; i < storages.size(); ++i) {
      Index root = i;
      while (storages[root].parent >= 0) {
        root = static_cast<Index>(storages[root].parent);
        descendants_[root].push_back(i);
      }
      roots_[i] = root;
    }
  }
  Index find_root(Index storage) const { return roots_[storage]; }

  // Calls `callback` with each storage that overlaps this one: itself, its parents and the storages inside it.
  template <typename Visit>
  void for_each_overlapping(Index storage, Visit&& callback) const {
    for (int64_t at = storage; at >= 0; at = storages_[static_cast<size_t>(at)].parent) callback(static_cast<Index>(at));
    for (const Index inner : descendants_[storage]) callback(inner);
  }

 private:
  const std::vector<ScheduledStorage>& storages_;
  std::vector<Index> roots_;
  std::vector<std::vector<Index>> descendants_;
};

// The steps that wrote the current contents of a storage: one step, or several that wrote disjoint ranges.
struct DisjointWriterGroup {
  std::vector<Index> steps, prerequisites;  // prerequisites: steps that all steps of the group depend on
  uint64_t writer = 0;

  // Whether a write with this id joins the group. Once a step has read the storage, no further write does.
  bool accepts_write(uint64_t writer_id, const std::vector<Index>& readers) const {
    return writer_id != 0 && writer_id == writer && readers.empty();
  }

  void add(Index step, uint64_t writer_id, const std::vector<Index>& readers) {
    if (!accepts_write(writer_id, readers)) {
      prerequisites = std::move(steps);
      prerequisites.insert(prerequisites.end(), readers.begin(), readers.end());
      steps.clear();
      writer = writer_id;
    }
    steps.push_back(step);
  }
};

// The dependency graph of the steps.
class DependencyGraph {
 public:
  DependencyGraph(const ScheduleProblem& problem, const StorageTree& storage_tree)
      : dependency_counts_(problem.steps(), 0), first_(problem.steps() + 1, 0) {
    std::vector<DisjointWriterGroup> writers(problem.storages.size());
    std::vector<std::vector<Index>> readers(problem.storages.size());
    std::vector<std::pair<Index, Index>> edges;
    for (Index step = 0; step < problem.steps(); ++step) {
      const auto after = [&](const std::vector<Index>& earlier) {
        for (const Index other : earlier)
          if (other != step) edges.emplace_back(other, step);
      };
      for (const auto& access : get_accesses(problem, step))
        storage_tree.for_each_overlapping(access.storage, [&](Index storage) {
          const bool joins_group =
              storage == access.storage && access.write && writers[storage].accepts_write(access.writer, readers[storage]);
          after(joins_group ? writers[storage].prerequisites : writers[storage].steps);
          if (access.write) after(readers[storage]);
        });
      for (const auto& access : get_accesses(problem, step)) {
        if (access.write) {
          writers[access.storage].add(step, access.writer, readers[access.storage]);
          readers[access.storage].clear();
        } else {
          readers[access.storage].push_back(step);
        }
      }
    }
    build_successor_lists(edges);
  }

  static std::span<const ScheduledAccess> get_accesses(const ScheduleProblem& problem, Index step) {
    return {problem.accesses.data() + problem.begins[step], problem.accesses.data() + problem.begins[step + 1]};
  }
  const std::vector<Index>& dependency_counts() const { return dependency_counts_; }  // for each step: number of steps it waits for
  std::span<const Index> get_successors(Index step) const { return {after_.data() + first_[step], after_.data() + first_[step + 1]}; }

 private:
  void build_successor_lists(std::vector<std::pair<Index, Index>>& edges) {
    std::sort(edges.begin(), edges.end());
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
    after_.reserve(edges.size());
    for (const auto& [before, step] : edges) {
      ++dependency_counts_[step];
      ++first_[before + 1];
      after_.push_back(step);
    }
    std::partial_sum(first_.begin(), first_.end(), first_.begin());
  }

  std::vector<Index> dependency_counts_, first_, after_;
};

// Tracks the arena bytes that are live while steps run.
class LivenessTracker {
 public:
  LivenessTracker(const ScheduleProblem& problem, const StorageTree& storage_tree)
      : problem_(problem),
        storage_tree_(storage_tree),
        accesses_left_(problem.storages.size(), 0),
        is_live_(problem.storages.size(), false) {
    for (const auto& access : problem.accesses) ++accesses_left_[storage_tree.find_root(access.storage)];
  }
  uint64_t bytes() const { return bytes_; }

  // Returns the size of the storages that a step would make live.
  uint64_t count_newly_live_bytes(Index step) {
    const uint64_t before = bytes_;
    begin_step(step);
    const uint64_t new_bytes = bytes_ - before;
    for (const Index root : newly_live_) is_live_[root] = false;
    bytes_ = before;
    return new_bytes;
  }
  void begin_step(Index step) {
    newly_live_.clear();
    for (const auto& access : DependencyGraph::get_accesses(problem_, step)) {
      const Index root = storage_tree_.find_root(access.storage);
      if (is_live_[root]) continue;
      is_live_[root] = true;
      newly_live_.push_back(root);
      bytes_ += problem_.storages[root].bytes;
    }
  }
  // Ends a step after its wave: storages without remaining accesses are no longer live.
  void end_step(Index step) {
    for (const auto& access : DependencyGraph::get_accesses(problem_, step)) {
      const Index root = storage_tree_.find_root(access.storage);
      if (--accesses_left_[root] == 0) bytes_ -= problem_.storages[root].bytes;
    }
  }

 private:
  const ScheduleProblem& problem_;
  const StorageTree& storage_tree_;
  std::vector<Index> accesses_left_;  // for each storage: number of remaining accesses
  std::vector<bool> is_live_;
  std::vector<Index> newly_live_;
  uint64_t bytes_ = 0;
};

Schedule schedule_sequentially(const ScheduleProblem& problem, const StorageTree& storage_tree) {
  Schedule result;
  result.waves.resize(problem.steps());
  std::iota(result.waves.begin(), result.waves.end(), 0u);
  result.wave_count = static_cast<uint32_t>(problem.steps());
  LivenessTracker live(problem, storage_tree);
  for (Index step = 0; step < problem.steps(); ++step) {
    live.begin_step(step);
    result.peak_bytes = std::max(result.peak_bytes, live.bytes());
    live.end_step(step);
  }
  return result;
}

// Fills each wave with ready steps, in their original order, while the live bytes stay within the budget.
Schedule schedule_in_waves(const ScheduleProblem& problem, const StorageTree& storage_tree, const DependencyGraph& dependencies,
                           uint64_t budget) {
  Schedule result;
  result.waves.resize(problem.steps());
  std::vector<Index> dependency_counts = dependencies.dependency_counts();
  std::priority_queue<Index, std::vector<Index>, std::greater<>> ready;
  for (Index step = 0; step < problem.steps(); ++step)
    if (dependency_counts[step] == 0) ready.push(step);
  LivenessTracker live(problem, storage_tree);
  std::vector<Index> wave, skipped;
  for (; !ready.empty(); ++result.wave_count) {
    wave.clear();
    skipped.clear();
    while (!ready.empty() && skipped.size() < kMaxSkippedSteps) {
      const Index step = ready.top();
      ready.pop();
      if (!wave.empty() && live.bytes() + live.count_newly_live_bytes(step) > budget) {
        skipped.push_back(step);
        continue;
      }
      live.begin_step(step);
      wave.push_back(step);
    }
    result.peak_bytes = std::max(result.peak_bytes, live.bytes());
    for (const Index step : wave) {
      result.waves[step] = result.wave_count;
      live.end_step(step);
      for (const Index successor : dependencies.get_successors(step))
        if (--dependency_counts[successor] == 0) ready.push(successor);
    }
    for (const Index step : skipped) ready.push(step);
  }
  return result;
}

// Returns the steps sorted by wave; steps of one wave keep their order.
std::vector<Index> sort_by_wave(const Schedule& schedule) {
  std::vector<Index> next(schedule.wave_count + 1, 0), order(schedule.waves.size());
  for (const Index wave : schedule.waves) ++next[wave + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  for (Index step = 0; step < order.size(); ++step) order[next[schedule.waves[step]]++] = step;
  return order;
}

}  // namespace

Schedule schedule_steps(const ScheduleProblem& problem) {
  const StorageTree storage_tree(problem.storages);
  Schedule sequential_schedule = schedule_sequentially(problem, storage_tree);
  const auto peak = static_cast<double>(sequential_schedule.peak_bytes);
  const DependencyGraph dependencies(problem, storage_tree);
  Schedule best;
  for (const double ratio : kBudgets) {
    best = schedule_in_waves(problem, storage_tree, dependencies, static_cast<uint64_t>(std::max(ratio * peak, kFreeBytes)));
    if (static_cast<double>(best.peak_bytes) <= std::max(kMaxPeakRatio * peak, kFreeBytes)) break;
    best = sequential_schedule;
  }
  best.sequential_peak_bytes = sequential_schedule.peak_bytes;
  best.order = sort_by_wave(best);
  return best;
}

}  // namespace pumice

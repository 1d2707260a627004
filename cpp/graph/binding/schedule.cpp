#include "graph/binding/schedule.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <span>

namespace pumice {
namespace {

constexpr double kMostPeak = 1.2;  // maximum, as a multiple of the sequential peak
// Bytes that a wave may always use. A single-token decode step keeps little memory live: 1.2 times that would serialise its steps, at 1.9
// us each on an H200.
constexpr double kFreeBytes = 1 << 20;
// Budgets for the live bytes of a wave, as multiples of the sequential peak. A wave always includes its first step, so a schedule may
// exceed its budget. The next budget is then tried, and in the end the given order is used.
constexpr double kBudgets[] = {1.2, 1.1, 1.0};
constexpr size_t kMostPutOff = 32;  // maximum number of ready steps that a wave skips to find one that fits

using Index = uint32_t;

// Maps each storage to its outermost parent and to the storages inside it.
class Families {
 public:
  explicit Families(const std::vector<ScheduledStorage>& storages)
      : storages_(storages), roots_(storages.size()), inside_(storages.size()) {
    for (Index i = 0; i < storages.size(); ++i) {
      Index root = i;
      while (storages[root].parent >= 0) {
        root = static_cast<Index>(storages[root].parent);
        inside_[root].push_back(i);
      }
      roots_[i] = root;
    }
  }
  Index root(Index storage) const { return roots_[storage]; }

  // Visits the storages that overlap this one: itself, its parents and the storages inside it.
  template <typename Visit>
  void visit(Index storage, Visit&& touch) const {
    for (int64_t at = storage; at >= 0; at = storages_[static_cast<size_t>(at)].parent) touch(static_cast<Index>(at));
    for (const Index inner : inside_[storage]) touch(inner);
  }

 private:
  const std::vector<ScheduledStorage>& storages_;
  std::vector<Index> roots_;
  std::vector<std::vector<Index>> inside_;
};

// The steps that wrote a storage's current contents: one step, or several that wrote disjoint ranges.
struct Writers {
  std::vector<Index> steps, before;  // before: dependencies shared by all steps of the group
  uint64_t writer = 0;

  // Whether a write with this id joins the group. It does not if a step has already read the storage.
  bool joined_by(uint64_t other, const std::vector<Index>& readers) const { return other != 0 && other == writer && readers.empty(); }

  void add(Index step, uint64_t other, const std::vector<Index>& readers) {
    if (!joined_by(other, readers)) {
      before = std::move(steps);
      before.insert(before.end(), readers.begin(), readers.end());
      steps.clear();
      writer = other;
    }
    steps.push_back(step);
  }
};

// The dependency graph of the steps.
class Dependencies {
 public:
  Dependencies(const ScheduleProblem& problem, const Families& families) : waits_(problem.steps(), 0), first_(problem.steps() + 1, 0) {
    std::vector<Writers> writers(problem.storages.size());
    std::vector<std::vector<Index>> readers(problem.storages.size());
    std::vector<std::pair<Index, Index>> edges;
    for (Index step = 0; step < problem.steps(); ++step) {
      const auto after = [&](const std::vector<Index>& earlier) {
        for (const Index other : earlier)
          if (other != step) edges.emplace_back(other, step);
      };
      for (const auto& access : accesses_of(problem, step))
        families.visit(access.storage, [&](Index storage) {
          const bool joins = storage == access.storage && access.write && writers[storage].joined_by(access.writer, readers[storage]);
          after(joins ? writers[storage].before : writers[storage].steps);
          if (access.write) after(readers[storage]);
        });
      for (const auto& access : accesses_of(problem, step)) {
        if (access.write) {
          writers[access.storage].add(step, access.writer, readers[access.storage]);
          readers[access.storage].clear();
        } else {
          readers[access.storage].push_back(step);
        }
      }
    }
    collect(edges);
  }

  static std::span<const ScheduledAccess> accesses_of(const ScheduleProblem& problem, Index step) {
    return {problem.accesses.data() + problem.begins[step], problem.accesses.data() + problem.begins[step + 1]};
  }
  const std::vector<Index>& waits() const { return waits_; }  // number of steps that each step waits for
  std::span<const Index> followers(Index step) const { return {after_.data() + first_[step], after_.data() + first_[step + 1]}; }

 private:
  void collect(std::vector<std::pair<Index, Index>>& edges) {
    std::sort(edges.begin(), edges.end());
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
    after_.reserve(edges.size());
    for (const auto& [before, step] : edges) {
      ++waits_[step];
      ++first_[before + 1];
      after_.push_back(step);
    }
    std::partial_sum(first_.begin(), first_.end(), first_.begin());
  }

  std::vector<Index> waits_, first_, after_;
};

// Tracks the arena bytes that are live while steps run.
class Liveness {
 public:
  Liveness(const ScheduleProblem& problem, const Families& families)
      : problem_(problem), families_(families), left_(problem.storages.size(), 0), alive_(problem.storages.size(), false) {
    for (const auto& access : problem.accesses) ++left_[families.root(access.storage)];
  }
  uint64_t bytes() const { return bytes_; }

  // Returns the bytes that a step would make live.
  uint64_t births(Index step) {
    const uint64_t before = bytes_;
    begin(step);
    const uint64_t born = bytes_ - before;
    for (const Index root : last_born_) alive_[root] = false;
    bytes_ = before;
    return born;
  }
  void begin(Index step) {
    last_born_.clear();
    for (const auto& access : Dependencies::accesses_of(problem_, step)) {
      const Index root = families_.root(access.storage);
      if (alive_[root]) continue;
      alive_[root] = true;
      last_born_.push_back(root);
      bytes_ += problem_.storages[root].bytes;
    }
  }
  // Ends a step after its wave: frees storages with no accesses left.
  void end(Index step) {
    for (const auto& access : Dependencies::accesses_of(problem_, step)) {
      const Index root = families_.root(access.storage);
      if (--left_[root] == 0) bytes_ -= problem_.storages[root].bytes;
    }
  }

 private:
  const ScheduleProblem& problem_;
  const Families& families_;
  std::vector<Index> left_;  // number of remaining accesses
  std::vector<bool> alive_;
  std::vector<Index> last_born_;
  uint64_t bytes_ = 0;
};

Schedule sequential(const ScheduleProblem& problem, const Families& families) {
  Schedule result;
  result.waves.resize(problem.steps());
  std::iota(result.waves.begin(), result.waves.end(), 0u);
  result.wave_count = static_cast<uint32_t>(problem.steps());
  Liveness live(problem, families);
  for (Index step = 0; step < problem.steps(); ++step) {
    live.begin(step);
    result.peak_bytes = std::max(result.peak_bytes, live.bytes());
    live.end(step);
  }
  return result;
}

// Fills waves with ready steps, in the given order, while the live bytes stay within the budget.
Schedule fill_waves(const ScheduleProblem& problem, const Families& families, const Dependencies& dependencies, uint64_t budget) {
  Schedule result;
  result.waves.resize(problem.steps());
  std::vector<Index> waits = dependencies.waits();
  std::priority_queue<Index, std::vector<Index>, std::greater<>> ready;
  for (Index step = 0; step < problem.steps(); ++step)
    if (waits[step] == 0) ready.push(step);
  Liveness live(problem, families);
  std::vector<Index> wave, put_off;
  for (; !ready.empty(); ++result.wave_count) {
    wave.clear();
    put_off.clear();
    while (!ready.empty() && put_off.size() < kMostPutOff) {
      const Index step = ready.top();
      ready.pop();
      if (!wave.empty() && live.bytes() + live.births(step) > budget) {
        put_off.push_back(step);
        continue;
      }
      live.begin(step);
      wave.push_back(step);
    }
    result.peak_bytes = std::max(result.peak_bytes, live.bytes());
    for (const Index step : wave) {
      result.waves[step] = result.wave_count;
      live.end(step);
      for (const Index follower : dependencies.followers(step))
        if (--waits[follower] == 0) ready.push(follower);
    }
    for (const Index step : put_off) ready.push(step);
  }
  return result;
}

// Sorts steps by wave, stably.
std::vector<Index> order_of(const Schedule& schedule) {
  std::vector<Index> next(schedule.wave_count + 1, 0), order(schedule.waves.size());
  for (const Index wave : schedule.waves) ++next[wave + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  for (Index step = 0; step < order.size(); ++step) order[next[schedule.waves[step]]++] = step;
  return order;
}

}  // namespace

Schedule schedule(const ScheduleProblem& problem) {
  const Families families(problem.storages);
  Schedule one_by_one = sequential(problem, families);
  const auto peak = static_cast<double>(one_by_one.peak_bytes);
  const Dependencies dependencies(problem, families);
  Schedule best;
  for (const double ratio : kBudgets) {
    best = fill_waves(problem, families, dependencies, static_cast<uint64_t>(std::max(ratio * peak, kFreeBytes)));
    if (static_cast<double>(best.peak_bytes) <= std::max(kMostPeak * peak, kFreeBytes)) break;
    best = one_by_one;
  }
  best.sequential_peak_bytes = one_by_one.peak_bytes;
  best.order = order_of(best);
  return best;
}

}  // namespace pumice

#include "graph/binding/step_order.h"

#include <algorithm>

#include "core/error.h"
#include "graph/binding/arena.h"
#include "graph/binding/schedule.h"

namespace pumice {
namespace {

class StepOrder {
 public:
  StepOrder(std::vector<PlannedStep> steps, const Placement& placement) : steps_(std::move(steps)), placement_(placement) {}

  // Waves, then the arena with lifetimes counted in waves, then every operand's offset.
  OrderedSteps run(std::span<StoredValue> stored) {
    const ScheduleProblem wanted = problem();
    const Schedule order = schedule(wanted);
    std::vector<ArenaInterval> intervals(placement_.roots.size(), {0, UINT32_MAX, 0});
    for (uint32_t i = 0; i < steps_.size(); ++i) {
      steps_[i].wave = order.waves[i];
      for (const PlannedOperand& operand : steps_[i].operands) {
        if (operand.place != Place::temporary) continue;
        const uint32_t root = outermost(placement_, operand.index).first;
        ArenaInterval& interval = intervals[root];
        if (placement_.roots[root].output < 0) interval.bytes = placement_.roots[root].bytes;
        interval.first = std::min(interval.first, order.waves[i]);
        interval.last = std::max(interval.last, order.waves[i]);
      }
    }
    for (ArenaInterval& interval : intervals)
      if (interval.bytes == 0) interval = {};
    OrderedSteps made{{}, place_intervals(intervals), order.sequential_peak_bytes, order.wave_count};
    made.steps.reserve(steps_.size());
    const std::vector<size_t> complete = stored.empty() ? std::vector<size_t>() : completions(order.order);
    for (StoredValue& value : stored) {
      value.complete = complete[outermost(placement_, value.place.index).first];
      settle(value.place, intervals);
    }
    for (const uint32_t i : order.order) {
      for (PlannedOperand& operand : steps_[i].operands) settle(operand, intervals);
      made.steps.push_back(std::move(steps_[i]));
    }
    return made;
  }

 private:
  ScheduleProblem problem() const {
    ScheduleProblem problem;
    problem.storages.reserve(placement_.roots.size());
    for (const StorageRoot& root : placement_.roots)
      problem.storages.push_back({root.output < 0 && root.parent < 0 ? round_up(root.bytes, kArenaAlignment) : 0, root.parent});
    for (const PlannedStep& step : steps_) {
      for (size_t k = 0; k < step.operands.size(); ++k)
        if (step.operands[k].place == Place::temporary)
          problem.accesses.push_back({step.operands[k].index, step.kernel->interface().bindings[k].access != Access::read});
      problem.end_step();
    }
    return problem;
  }

  // By outermost storage: the position in the order of the last step that writes there.
  std::vector<size_t> completions(const std::vector<uint32_t>& order) const {
    std::vector<size_t> complete(placement_.roots.size(), 0);
    for (size_t position = 0; position < order.size(); ++position) {
      const PlannedStep& step = steps_[order[position]];
      for (size_t k = 0; k < step.operands.size(); ++k)
        if (step.operands[k].place == Place::temporary && step.kernel->interface().bindings[k].access != Access::read)
          complete[outermost(placement_, step.operands[k].index).first] = position;
    }
    return complete;
  }

  void settle(PlannedOperand& operand, const std::vector<ArenaInterval>& intervals) const {
    if (operand.place != Place::temporary) return;
    const StorageRoot& own = placement_.roots[operand.index];
    const auto [root, offset] = outermost(placement_, operand.index);
    const int32_t output = placement_.roots[root].output;
    const uint64_t base = offset + (output >= 0 ? 0 : intervals[root].offset);
    operand.place = output >= 0 ? Place::output : Place::temporary;
    operand.index = output >= 0 ? static_cast<uint32_t>(output) : 0;
    operand.byte_offset += base;
    if (own.lane.period != 0) operand.lane = {base - own.offset, own.lane.period, own.lane.begin, own.lane.end};
  }

  std::vector<PlannedStep> steps_;
  const Placement& placement_;
};

}  // namespace

OrderedSteps order_and_place(std::vector<PlannedStep> steps, const Placement& placement, std::span<StoredValue> stored) {
  return StepOrder(std::move(steps), placement).run(stored);
}

}  // namespace pumice

#include "graph/binding/step_order.h"

#include <algorithm>

#include "core/error.h"
#include "core/injected_fault.h"
#include "graph/binding/arena.h"
#include "graph/binding/schedule.h"

namespace pumice {
namespace {

class StepScheduler {
 public:
  StepScheduler(std::vector<PlannedStep> steps, const MemoryPlan& memory_plan) : steps_(std::move(steps)), memory_plan_(memory_plan) {}

  OrderedSteps run(std::span<StoredValue> stored) {
    if (is_fault_injected("in place")) inject_input_overwrite(stored);
    const ScheduleProblem schedule_problem = make_schedule_problem();
    Schedule order = schedule_steps(schedule_problem);
    if (is_fault_injected("order")) swap_dependent_steps(order.order);
    if (is_fault_injected("reversed")) reverse_waves(order);
    std::vector<ArenaInterval> intervals(memory_plan_.roots.size(), {0, UINT32_MAX, 0});
    for (uint32_t i = 0; i < steps_.size(); ++i) {
      steps_[i].wave = order.waves[i];
      for (const PlannedOperand& operand : steps_[i].operands) {
        if (operand.memory != MemoryKind::temporary) continue;
        const uint32_t root = find_outermost_storage(memory_plan_, operand.index).first;
        ArenaInterval& interval = intervals[root];
        if (memory_plan_.roots[root].output < 0) interval.bytes = memory_plan_.roots[root].bytes;
        interval.first = std::min(interval.first, order.waves[i]);
        interval.last = std::max(interval.last, order.waves[i]);
      }
    }
    for (ArenaInterval& interval : intervals) {
      if (interval.bytes == 0) interval = {};
      if (is_fault_injected("stale")) interval.last = interval.first;
    }
    OrderedSteps result{{}, assign_arena_offsets(intervals), order.sequential_peak_bytes, order.wave_count};
    result.steps.reserve(steps_.size());
    const std::vector<size_t> last_write = stored.empty() ? std::vector<size_t>() : find_last_writes(order.order);
    for (StoredValue& value : stored) {
      value.last_write = last_write[find_outermost_storage(memory_plan_, value.location.index).first];
      resolve_location(value.location, intervals);
    }
    for (const uint32_t i : order.order) {
      for (PlannedOperand& operand : steps_[i].operands) resolve_location(operand, intervals);
      result.steps.push_back(std::move(steps_[i]));
    }
    return result;
  }

 private:
  ScheduleProblem make_schedule_problem() const {
    ScheduleProblem problem;
    problem.storages.reserve(memory_plan_.roots.size());
    for (const StorageRoot& root : memory_plan_.roots)
      problem.storages.push_back({root.output < 0 && root.parent < 0 ? round_up(root.bytes, kArenaAlignment) : 0, root.parent});
    for (const PlannedStep& step : steps_) {
      for (size_t k = 0; k < step.operands.size(); ++k)
        if (step.operands[k].memory == MemoryKind::temporary)
          problem.accesses.push_back({step.operands[k].index, writes_operand(step, k), step.operands[k].interleaved.writer});
      problem.end_step();
    }
    return problem;
  }

  bool writes_operand(const PlannedStep& step, size_t operand) const {
    return step.kernel->interface().bindings[operand].access != ResourceAccess::read;
  }

  // Returns the StorageRoot index of the first temporary tensor that a step writes (or reads), or -1.
  int64_t find_first_storage(const PlannedStep& step, bool written) const {
    for (size_t k = 0; k < step.operands.size(); ++k)
      if (step.operands[k].memory == MemoryKind::temporary && writes_operand(step, k) == written) return step.operands[k].index;
    return -1;
  }

  // For fault injection ("in place"): the last convolution whose input and output have the same size overwrites its input.
  void inject_input_overwrite(std::span<StoredValue> stored) {
    for (size_t i = steps_.size(); i-- > 0;) {
      const int64_t from = find_first_storage(steps_[i], false), to = find_first_storage(steps_[i], true);
      if (!steps_[i].kernel->name().starts_with("conv") || from < 0 || to < 0) continue;
      const auto read = static_cast<uint32_t>(from), written = static_cast<uint32_t>(to);
      if (memory_plan_.roots[read].bytes != memory_plan_.roots[written].bytes || memory_plan_.roots[written].output >= 0) continue;
      const auto move = [&](PlannedOperand& operand) {
        if (operand.memory == MemoryKind::temporary && operand.index == written) operand.index = read;
      };
      for (PlannedStep& step : steps_) std::ranges::for_each(step.operands, move);
      for (StoredValue& value : stored) move(value.location);
      return;
    }
  }

  // For fault injection ("order"): swaps the last two consecutive steps where the second reads the output of the first.
  void swap_dependent_steps(std::vector<uint32_t>& order) const {
    for (size_t i = order.size(); i-- > 1;) {
      const int64_t written_storage = find_first_storage(steps_[order[i - 1]], true);
      if (written_storage < 0 || written_storage != find_first_storage(steps_[order[i]], false)) continue;
      std::swap(order[i - 1], order[i]);
      return;
    }
  }

  // For test runs in "reversed" order: the steps of a wave are independent, so results stay bit-identical.
  static void reverse_waves(Schedule& schedule) {
    std::ranges::reverse(schedule.order);
    std::ranges::stable_sort(schedule.order, {}, [&](uint32_t step) { return schedule.waves[step]; });
  }

  // Returns, for each outermost StorageRoot, the position in `order` of the last step that writes it.
  std::vector<size_t> find_last_writes(const std::vector<uint32_t>& order) const {
    std::vector<size_t> last_write(memory_plan_.roots.size(), 0);
    for (size_t position = 0; position < order.size(); ++position) {
      const PlannedStep& step = steps_[order[position]];
      for (size_t k = 0; k < step.operands.size(); ++k)
        if (step.operands[k].memory == MemoryKind::temporary && writes_operand(step, k))
          last_write[find_outermost_storage(memory_plan_, step.operands[k].index).first] = position;
    }
    return last_write;
  }

  void resolve_location(PlannedOperand& operand, const std::vector<ArenaInterval>& intervals) const {
    if (operand.memory != MemoryKind::temporary) return;
    const StorageRoot& storage = memory_plan_.roots[operand.index];
    const auto [root, offset] = find_outermost_storage(memory_plan_, operand.index);
    const int32_t output = memory_plan_.roots[root].output;
    const uint64_t base = offset + (output >= 0 ? 0 : intervals[root].offset);
    operand.memory = output >= 0 ? MemoryKind::output : MemoryKind::temporary;
    operand.index = output >= 0 ? static_cast<uint32_t>(output) : 0;
    operand.byte_offset += base;
    if (storage.interleaved.period == 0) return;
    operand.interleaved.origin = base - storage.offset, operand.interleaved.period = storage.interleaved.period;
    operand.interleaved.begin = storage.interleaved.begin, operand.interleaved.end = storage.interleaved.end;
  }

  std::vector<PlannedStep> steps_;
  const MemoryPlan& memory_plan_;
};

}  // namespace

OrderedSteps order_steps(std::vector<PlannedStep> steps, const MemoryPlan& memory_plan, std::span<StoredValue> stored) {
  return StepScheduler(std::move(steps), memory_plan).run(stored);
}

}  // namespace pumice

#include "graph/control_flow/branch_driver.h"

#include <algorithm>

#include "core/error.h"

namespace pumice {
namespace {

constexpr size_t kMaxBranchDispatches = 32;  // total of both branches; skipped dispatches cost time too
constexpr size_t kMaxCachedBranches = 32, kMaxBranchRecordings = 16;

}  // namespace

std::unique_ptr<PredicatedCode> BranchDriver::compile_branches(const RoutineStep& step, std::span<const RoutineValue> operands,
                                                               std::vector<TensorDesc>& results) const {
  std::vector<TensorDesc> inputs;
  for (const RoutineValue& value : operands.subspan(1)) inputs.push_back(value.desc);
  RoutineAnalysis analysis(program_);
  try {
    if (!analysis.analyze_if(step, inputs, results) || analysis.dispatches > kMaxBranchDispatches || !analysis.inner.empty()) return {};
  } catch (const GraphError&) {  // the branch may never run; if it does, the host reports the error
    return {};
  } catch (const BindingError&) {
    return {};
  } catch (const UnsupportedError&) {
    return {};
  }
  return std::make_unique<PredicatedCode>(program_, analysis, execution_.recordings().options());
}

BranchDriver::CachedBranch& BranchDriver::find_or_compile(const RoutineStep& step, std::span<const RoutineValue> operands) {
  const auto matches = [&](const CachedBranch& cached) {
    return cached.step == &step &&
           std::ranges::equal(cached.shapes, operands, {}, {}, [](const RoutineValue& value) { return value.desc.shape; });
  };
  const auto found = std::ranges::find_if(cache_, matches);
  if (found != cache_.end()) {
    cache_.splice(cache_.begin(), cache_, found);
    return cache_.front();
  }
  CachedBranch& added = cache_.emplace_front();
  added.step = &step;
  for (const RoutineValue& value : operands) added.shapes.push_back(value.desc.shape);
  added.code = execution_.with_loop_clock_paused([&] { return compile_branches(step, operands, added.results); });
  if (cache_.size() > kMaxCachedBranches) cache_.pop_back();
  return cache_.front();
}

CommandList BranchDriver::record_branches(const RoutineStep& step, PredicatedCode& code, std::span<const RoutineValue> operands,
                                          std::span<const RoutineValue> outputs) {
  const auto build = [&](StagingSlotPool* pool) {
    PredicatedCodeBuilder builder(code, pool);
    uint32_t word = kNoWord;
    builder.add_branches(step, operands, outputs, word);
    for (const RoutineValue& result : outputs)
      if (result.slot->needs_copy() && result.is_host_visible())
        builder.add_copy(result.range, {result.slot->host, 0, result.range.bytes}, kNoWord);
    return builder;
  };
  if (!code.words()) {
    const PredicatedCodeBuilder first = build(&execution_.pool());
    code.allocate_predicates(first.items, first.words_used(), {});
  }
  return code.record(build(nullptr).items);
}

std::optional<std::vector<RoutineValue>> BranchDriver::run(const RoutineStep& step, std::span<const RoutineValue> operands,
                                                           const std::vector<bool>& read_by_host) {
  CachedBranch& cached = find_or_compile(step, operands);
  if (!cached.code) return {};
  std::vector<RoutineValue> outputs;
  std::vector<uint64_t> key;
  for (size_t j = 0; j < cached.results.size(); ++j)
    outputs.push_back(execution_.allocate_value(cached.results[j], read_by_host[j] ? StagingSlotUse::readback : StagingSlotUse::device));
  for (const auto values : {operands, std::span<const RoutineValue>(outputs)})
    for (const RoutineValue& value : values) key.push_back(value.range.buffer->id());
  auto found = cached.recorded.find(key);
  if (found == cached.recorded.end()) {
    if (cached.recorded.size() >= kMaxBranchRecordings) cached.recorded.clear();
    found = cached.recorded.try_emplace(std::move(key), record_branches(step, *cached.code, operands, outputs)).first;
  }
  execution_.submit(found->second);
  return outputs;
}

}  // namespace pumice

#include "graph/control_flow/branch_driver.h"

#include <algorithm>

#include "core/error.h"

namespace pumice {
namespace {

constexpr size_t kMostDispatches = 32;  // maximum in both branches together: skipped dispatches cost time too
constexpr size_t kMostChoices = 32, kMostChoiceRecordings = 16;

}  // namespace

std::unique_ptr<GuardedCode> ChoiceDriver::make(const RoutineStep& step, std::span<const FlowValue> given,
                                                std::vector<TensorDesc>& results) const {
  std::vector<TensorDesc> inputs;
  for (const FlowValue& value : given.subspan(1)) inputs.push_back(value.desc);
  FlowSurvey survey(program_);
  try {
    if (!survey.choice(step, inputs, results) || survey.dispatches > kMostDispatches || !survey.inner.empty()) return {};
  } catch (const GraphError&) {  // the branch may never run: if it does, the host reports the error
    return {};
  } catch (const BindingError&) {
    return {};
  } catch (const UnsupportedError&) {
    return {};
  }
  return std::make_unique<GuardedCode>(program_, survey, session_.recordings().options());
}

ChoiceDriver::ReadyChoice& ChoiceDriver::find(const RoutineStep& step, std::span<const FlowValue> given) {
  const auto matches = [&](const ReadyChoice& ready) {
    return ready.step == &step && std::ranges::equal(ready.shapes, given, {}, {}, [](const FlowValue& value) { return value.desc.shape; });
  };
  const auto found = std::ranges::find_if(ready_, matches);
  if (found != ready_.end()) {
    ready_.splice(ready_.begin(), ready_, found);
    return ready_.front();
  }
  ReadyChoice& made = ready_.emplace_front();
  made.step = &step;
  for (const FlowValue& value : given) made.shapes.push_back(value.desc.shape);
  made.code = session_.off_the_clock([&] { return make(step, given, made.results); });
  if (ready_.size() > kMostChoices) ready_.pop_back();
  return ready_.front();
}

CommandList ChoiceDriver::record(const RoutineStep& step, GuardedCode& code, std::span<const FlowValue> given,
                                 std::span<const FlowValue> made) {
  const auto build = [&](HostSlotPool* pool) {
    CodeBuilder builder(code, pool);
    uint32_t word = kNoWord;
    builder.choose(step, given, made, word);
    for (const FlowValue& result : made)
      if (result.slot->is_copied() && result.host_visible())
        builder.copy(result.range, {result.slot->host, 0, result.range.bytes}, kNoWord);
    return builder;
  };
  if (!code.words()) {
    const CodeBuilder first = build(&session_.pool());
    code.finish(first.items, first.words_taken(), {});
  }
  return code.record(build(nullptr).items);
}

std::optional<std::vector<FlowValue>> ChoiceDriver::run(const RoutineStep& step, std::span<const FlowValue> given,
                                                        const std::vector<bool>& shown) {
  ReadyChoice& ready = find(step, given);
  if (!ready.code) return {};
  std::vector<FlowValue> made;
  std::vector<uint64_t> key;
  for (size_t j = 0; j < ready.results.size(); ++j)
    made.push_back(session_.made(ready.results[j], shown[j] ? HostSlotUse::readback : HostSlotUse::device));
  for (const auto values : {given, std::span<const FlowValue>(made)})
    for (const FlowValue& value : values) key.push_back(value.range.buffer->id());
  auto found = ready.recorded.find(key);
  if (found == ready.recorded.end()) {
    if (ready.recorded.size() >= kMostChoiceRecordings) ready.recorded.clear();
    found = ready.recorded.try_emplace(std::move(key), record(step, *ready.code, given, made)).first;
  }
  session_.submit(found->second);
  return made;
}

}  // namespace pumice

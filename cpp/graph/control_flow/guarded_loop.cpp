#include "graph/control_flow/guarded_loop.h"

#include <algorithm>
#include <bit>

namespace pumice {
namespace {

using Kind = GuardedItem::Kind;

// A round of each length is recorded once and kept; these limits bound the size of a recording.
constexpr size_t kMostIterations = 128;         // maximum per round
constexpr size_t kMostRoundDispatches = 16384;  // maximum per round

}  // namespace

std::unique_ptr<RoundsLoop> RoundsLoop::create(const FlowProgram& program, const RoutineStep& step, std::span<const FlowValue> values,
                                               HostSlotPool& pool, const RecordingOptions& options) {
  std::vector<TensorDesc> given;
  for (const FlowValue& value : values) given.push_back(value.desc);
  FlowSurvey survey(program);
  if (!survey.loop(step, given) || !survey.is_small()) return {};
  return std::unique_ptr<RoundsLoop>(new RoundsLoop(program, step, survey, values, pool, options));
}

RoundsLoop::RoundsLoop(const FlowProgram& program, const RoutineStep& step, const FlowSurvey& survey, std::span<const FlowValue> values,
                       HostSlotPool& pool, const RecordingOptions& options)
    : step_(step),
      code_(program, survey, options),
      most_iterations_(std::min(kMostIterations, std::bit_floor(kMostRoundDispatches / (survey.dispatches + 1)))) {
  const size_t kept = step.carried + step.state;
  for (auto& set : states_)
    for (size_t i = 0; i < kept; ++i) {
      const TensorDesc desc(values[i].desc.dtype, values[i].desc.shape);
      FlowValue& value = set.emplace_back(FlowValue{desc, {}, pool.take(desc.bytes(), HostSlotUse::device), {}});
      value.range = {value.slot->device, 0, desc.bytes()};
    }
  // Invariants stay in the callers' memory, which may hold other values when the loop is not running.
  for (size_t i = kept; i < values.size(); ++i) invariants_.push_back({values[i].desc, values[i].range, {}, {}});
  make_status(program.context, 2 * code_.inner().size());
  CodeBuilder first(code_, &pool);
  add_iteration(first, 0, true);
  code_.finish(first.items, first.words_taken(), status_buffer_);
  zeros_ = Buffer::create(program.context, code_.words()->bytes());
  fill({zeros_, 0, zeros_->bytes()}, 0);
}

// Adds the code of one iteration. Returns the word that is set at the end of the loop, or kNoWord.
uint32_t RoundsLoop::add_iteration(CodeBuilder& builder, size_t set, bool guarded) const {
  builder.restart();
  if (in_parts()) {
    const uint32_t body = builder.words(2);
    builder.part(step_, states_[0], states_[1], invariants_, {kGoesOn, body, kTrips});
    return body + 1;
  }
  std::vector<FlowValue> values = states_[set % 2];
  values.insert(values.end(), invariants_.begin(), invariants_.end());
  uint32_t word = guarded ? kGoesOn : kNoWord;
  const auto before = static_cast<std::ptrdiff_t>(builder.items.size());
  const auto condition = builder.run(step_.first, values, {}, word);
  if (guarded)
    builder.add_branch(Kind::loop, kGoesOn, step_.node).condition = condition[0].range;
  else
    // omits the condition's code but keeps its scratch memory: the body must use the same scratch memory as in guarded rounds
    builder.items.erase(builder.items.begin() + before, builder.items.end());
  builder.run(step_.second, values, states_[(set + 1) % 2], word);
  return kNoWord;
}

std::vector<DeviceLoop::Inner> RoundsLoop::inner(uint64_t round) const {
  std::vector<Inner> all;
  for (size_t i = 0; i < code_.inner().size(); ++i) all.push_back({code_.inner()[i], status(round)[2 + 2 * i], status(round)[3 + 2 * i]});
  return all;
}

std::vector<BufferRange> RoundsLoop::entry() const {
  std::vector<BufferRange> ranges;
  for (const FlowValue& value : states_[0]) ranges.push_back(value.range);
  return ranges;
}

CommandList& RoundsLoop::begin() {
  if (!begin_) {
    CodeBuilder builder(code_, nullptr);
    builder.copy({zeros_, 0, zeros_->bytes()}, {code_.words(), 0, zeros_->bytes()}, kNoWord);
    builder.add_branch(Kind::begin, kGoesOn, step_.node);
    begin_ = std::make_unique<CommandList>(code_.record(std::move(builder.items)));
  }
  return *begin_;
}

CommandList& RoundsLoop::round(size_t iterations) {
  const auto found = recorded_.find({true, iterations});
  if (found != recorded_.end()) return found->second;
  CodeBuilder builder(code_, nullptr);
  uint32_t over = kNoWord;
  for (size_t i = 0; i < iterations; ++i) over = add_iteration(builder, i, true);
  GuardedItem& end = builder.add_branch(Kind::status, kGoesOn, step_.node);
  end.enclosing = over, end.counter = 2 * static_cast<uint32_t>(code_.inner().size());
  return recorded_.try_emplace({true, iterations}, code_.record(std::move(builder.items))).first->second;
}

CommandList& RoundsLoop::repeats(size_t iterations) {
  const auto found = recorded_.find({false, iterations});
  if (found != recorded_.end()) return found->second;
  CodeBuilder builder(code_, nullptr);
  for (size_t i = 0; i < iterations; ++i) add_iteration(builder, i, false);
  return recorded_.try_emplace({false, iterations}, code_.record(std::move(builder.items))).first->second;
}

}  // namespace pumice

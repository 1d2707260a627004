#include "graph/control_flow/predicated_loop.h"

#include <algorithm>
#include <bit>

namespace pumice {
namespace {

using DispatchKind = PredicatedDispatch::DispatchKind;

// Each round length is recorded once and cached; these limits bound the size of a recording.
constexpr size_t kMaxRoundIterations = 128;    // maximum per round
constexpr size_t kMaxRoundDispatches = 16384;  // maximum per round

}  // namespace

std::unique_ptr<PredicatedLoop> PredicatedLoop::create(const ControlFlowProgram& program, const RoutineStep& step,
                                                       std::span<const RoutineValue> values, StagingSlotPool& pool,
                                                       const RecordingOptions& options) {
  std::vector<TensorDesc> input_descs;
  for (const RoutineValue& value : values) input_descs.push_back(value.desc);
  RoutineAnalysis analysis(program);
  if (!analysis.analyze_loop(step, input_descs) || !analysis.fits_in_recording()) return {};
  return std::unique_ptr<PredicatedLoop>(new PredicatedLoop(program, step, analysis, values, pool, options));
}

PredicatedLoop::PredicatedLoop(const ControlFlowProgram& program, const RoutineStep& step, const RoutineAnalysis& analysis,
                               std::span<const RoutineValue> values, StagingSlotPool& pool, const RecordingOptions& options)
    : step_(step),
      code_(program, analysis, options),
      max_iterations_(std::min(kMaxRoundIterations, std::bit_floor(kMaxRoundDispatches / (analysis.dispatches + 1)))) {
  const size_t num_states = step.carried + step.state;
  for (auto& set : states_)
    for (size_t i = 0; i < num_states; ++i) {
      const TensorDesc desc(values[i].desc.dtype, values[i].desc.shape);
      RoutineValue& value = set.emplace_back(RoutineValue{desc, {}, pool.acquire(desc.bytes(), StagingSlotUse::device), {}});
      value.range = {value.slot->device, 0, desc.bytes()};
    }
  // Invariants stay in the memory of the caller, which may hold other values while the loop is not running.
  for (size_t i = num_states; i < values.size(); ++i) invariants_.push_back({values[i].desc, values[i].range, {}, {}});
  allocate_status(program.context, 2 * code_.inner_loops().size());
  PredicatedCodeBuilder first(code_, &pool);
  add_iteration(first, 0, true);
  code_.allocate_predicates(first.items, first.words_used(), status_buffer_);
  zeros_ = Buffer::create(program.context, code_.words()->bytes());
  fill({zeros_, 0, zeros_->bytes()}, 0);
}

// Adds the dispatches of one iteration. Returns the predicate word that is set at the end of the loop, or kNoWord.
uint32_t PredicatedLoop::add_iteration(PredicatedCodeBuilder& builder, size_t set, bool predicated) const {
  builder.reset_indices();
  if (has_inner_loops()) {
    const uint32_t body = builder.allocate_words(2);
    builder.add_loop_iteration(step_, states_[0], states_[1], invariants_, {kContinueWord, body, kTripsWord});
    return body + 1;
  }
  std::vector<RoutineValue> values = states_[set % 2];
  values.insert(values.end(), invariants_.begin(), invariants_.end());
  uint32_t word = predicated ? kContinueWord : kNoWord;
  const auto before = static_cast<std::ptrdiff_t>(builder.items.size());
  const auto condition = builder.add_routine(step_.first, values, {}, word);
  if (predicated)
    builder.add_branch(DispatchKind::loop, kContinueWord, step_.node).condition = condition[0].range;
  else
    // drops the dispatches of the condition but keeps its scratch memory, so that the body uses the same scratch memory as in predicated
    // rounds
    builder.items.erase(builder.items.begin() + before, builder.items.end());
  builder.add_routine(step_.second, values, states_[(set + 1) % 2], word);
  return kNoWord;
}

std::vector<DeviceLoop::InnerLoopStatus> PredicatedLoop::get_inner_loop_status(uint64_t round) const {
  std::vector<InnerLoopStatus> all;
  for (size_t i = 0; i < code_.inner_loops().size(); ++i)
    all.push_back({code_.inner_loops()[i], status(round)[2 + 2 * i], status(round)[3 + 2 * i]});
  return all;
}

std::vector<BufferRange> PredicatedLoop::input_ranges() const {
  std::vector<BufferRange> ranges;
  for (const RoutineValue& value : states_[0]) ranges.push_back(value.range);
  return ranges;
}

CommandList& PredicatedLoop::get_begin_command_list() {
  if (!begin_) {
    PredicatedCodeBuilder builder(code_, nullptr);
    builder.add_copy({zeros_, 0, zeros_->bytes()}, {code_.words(), 0, zeros_->bytes()}, kNoWord);
    builder.add_branch(DispatchKind::begin, kContinueWord, step_.node);
    begin_ = std::make_unique<CommandList>(code_.record(std::move(builder.items)));
  }
  return *begin_;
}

CommandList& PredicatedLoop::get_round_command_list(size_t iterations) {
  const auto recording = recorded_.find({true, iterations});
  if (recording != recorded_.end()) return recording->second;
  PredicatedCodeBuilder builder(code_, nullptr);
  uint32_t end_word = kNoWord;
  for (size_t i = 0; i < iterations; ++i) end_word = add_iteration(builder, i, true);
  PredicatedDispatch& end = builder.add_branch(DispatchKind::status, kContinueWord, step_.node);
  end.enclosing = end_word, end.counter = 2 * static_cast<uint32_t>(code_.inner_loops().size());
  return recorded_.try_emplace({true, iterations}, code_.record(std::move(builder.items))).first->second;
}

CommandList& PredicatedLoop::get_counted_round_command_list(size_t iterations) {
  const auto recording = recorded_.find({false, iterations});
  if (recording != recorded_.end()) return recording->second;
  PredicatedCodeBuilder builder(code_, nullptr);
  for (size_t i = 0; i < iterations; ++i) add_iteration(builder, i, false);
  return recorded_.try_emplace({false, iterations}, code_.record(std::move(builder.items))).first->second;
}

}  // namespace pumice

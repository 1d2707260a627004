#include "graph/rounds_loop.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace pumice {
namespace {

constexpr size_t kMostIterations = 128;                          // of a round
constexpr size_t kMostDepth = 16;                                // of IF nodes in IF nodes
constexpr size_t kMostDispatches = 512;                          // of an iteration
constexpr size_t kMostRecorded = 16384;                          // of a round
constexpr size_t kInnerCopies = 8;                               // of a loop inside, in one iteration of a round
constexpr uint32_t kNone = UINT32_MAX, kGoesOn = 0, kTrips = 1;  // words; then that of rounds
constexpr uint32_t kCounters = 3;                                // two of each loop inside: entries, trips. Then those of branches
enum class Kind : uint32_t { begin, loop, choice, status, move, split };

size_t index(ValueId value) {
  return static_cast<size_t>(value);
}

// Descriptions of all values of an iteration, and what it takes to run it.
class Survey {
 public:
  explicit Survey(const FlowProgram& program) : program_(program) {}

  // False where the host would have to look at something.
  bool run(size_t number, const std::vector<TensorDesc>& inputs, std::vector<TensorDesc>& outputs, size_t depth = 0) {
    const Routine& routine = program_.routines[number];
    std::vector<TensorDesc> descs(routine.read_by_host.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!fits(routine.input_values[i], inputs[i])) return false;
      descs[index(routine.inputs[i])] = inputs[i];
    }
    for (const RoutineConstant& constant : routine.constants) descs[index(constant.value)] = constant.host.desc;
    for (const RoutineStep& step : routine.steps) {
      std::vector<TensorDesc> given, made, other;
      for (const ValueId input : step.inputs) given.push_back(input == kAbsent ? TensorDesc() : descs[index(input)]);
      if (depth > kMostDepth || dispatches > kMostDispatches) return false;
      if (step.kind == RoutineStep::Kind::run) {
        if (!bind(*step.region, given, made)) return false;
      } else if (step.kind == RoutineStep::Kind::while_) {
        const size_t before = dispatches;
        inner.push_back(&step);
        if (!loop(step, given, depth + 1)) return false;
        dispatches = before + (dispatches - before + 2 * (step.carried + step.state) + 2) * kInnerCopies;
        made.assign(given.begin(), given.begin() + static_cast<std::ptrdiff_t>(step.carried));
      } else {
        if (step.inputs[0] == kAbsent) return false;
        given.erase(given.begin());
        if (!run(step.first, given, made, depth + 1) || !run(step.second, given, other, depth + 1) || made != other) return false;
        ++dispatches;
      }
      for (size_t j = 0; j < step.outputs.size(); ++j) descs[index(step.outputs[j])] = made[j];
    }
    for (const ValueId output : routine.outputs) outputs.push_back(descs[index(output)]);
    return true;
  }

  // Of a loop that is entered with these.
  bool loop(const RoutineStep& step, const std::vector<TensorDesc>& given, size_t depth = 0) {
    const auto is_single = [](const TensorDesc& desc) { return desc.shape == Shape{1}; };
    if (depth > 0 && step.scalar && std::ranges::all_of(given, is_single)) return false;  // faster as a kernel of its own
    std::vector<TensorDesc> condition, next;
    if (!run(step.first, given, condition, depth) || !run(step.second, given, next, depth)) return false;
    const auto same = [](const TensorDesc& a, const TensorDesc& b) { return a.shape == b.shape; };
    return is_single(condition[0]) && std::equal(next.begin(), next.end(), given.begin(), same);
  }

  size_t dispatches = 0;
  uint64_t arena_bytes = 0;
  std::vector<const RoutineStep*> inner;

 private:
  static bool fits(const ProgramValue& declared, const TensorDesc& given) {
    if (!declared.shape) return true;
    return std::ranges::equal(*declared.shape, given.shape, [](int64_t a, int64_t b) { return a == kUnknownSize || a == b; });
  }

  bool bind(Region& region, const std::vector<TensorDesc>& inputs, std::vector<TensorDesc>& outputs) {
    if (region.reads_values()) return false;
    std::vector<ShapeView> shapes;
    for (const TensorDesc& input : inputs) shapes.emplace_back(input.shape);
    const auto compiled = region.bind(shapes, {})->compiled();
    dispatches += compiled->plan().step_count();
    arena_bytes = std::max(arena_bytes, compiled->plan().temporary_bytes);
    for (const Slot& output : compiled->outputs()) outputs.push_back(*output.desc);
    return true;
  }

  const FlowProgram& program_;
};

}  // namespace

// A dispatch of a list, or a branch kernel still without its records.
struct RoundsLoop::Item {
  Dispatch dispatch;
  uint32_t word = kNone;  // that guards it
  bool is_branch = false;
  Kind kind = Kind::begin;
  uint32_t own = 0, enclosing = kNone, to = 0, counter = kNone;
  BufferRange condition;
};

// Turns routines on given memory into items. The same calls take the same scratch memory and words, whatever the iteration.
struct RoundsLoop::Builder {
  RoundsLoop& loop;
  SlotPool* pool;  // null: all scratch memory has been taken
  std::vector<Item> items = {};
  // What the next request takes. Copies of the same code begin at the same place.
  struct Place {
    size_t scratch = 0;
    uint32_t word = 0;
    uint32_t inner = 0;
  };
  Place next = {};

  uint32_t words(uint32_t count) { return std::exchange(next.word, next.word + count); }
  void restart() { next = {0, kCounters + 2 * static_cast<uint32_t>(loop.inner_.size()), 0}; }

  FlowValue scratch(const TensorDesc& desc) {
    if (next.scratch == loop.scratch_.size()) {
      FlowValue made{desc, {}, pool->take(desc.bytes(), SlotUse::device), {}};
      made.range = {made.slot->device, 0, desc.bytes()};
      loop.scratch_.push_back(std::move(made));
    }
    return loop.scratch_[next.scratch++];
  }

  // `wanted`: where the outputs go; scratch memory where empty. `word`: that guards it; after a loop inside, that of what follows.
  std::vector<FlowValue> run(size_t number, std::span<const FlowValue> inputs, std::span<const FlowValue> wanted, uint32_t& word) {
    const Routine& routine = loop.program_.routines[number];
    std::vector<FlowValue> values(routine.read_by_host.size());
    for (size_t i = 0; i < inputs.size(); ++i) values[index(routine.inputs[i])] = inputs[i];
    for (const RoutineConstant& constant : routine.constants) values[index(constant.value)] = {constant.host.desc, constant.range, {}, {}};
    const auto place = [&](ValueId id, const TensorDesc& desc) {
      for (size_t j = 0; j < wanted.size(); ++j)
        if (routine.outputs[j] == id) return wanted[j];
      return scratch(desc);
    };
    for (const RoutineStep& step : routine.steps) {
      std::vector<FlowValue> given, made;
      for (const ValueId input : step.inputs) given.push_back(values[index(input)]);
      if (step.kind == RoutineStep::Kind::run)
        made = run_region(step, given, place, word);
      else if (step.kind == RoutineStep::Kind::while_)
        made = run_loop(step, given, place, word);
      else
        made = choose(step, given, place, word);
      for (size_t j = 0; j < made.size(); ++j) values[index(step.outputs[j])] = std::move(made[j]);
    }
    std::vector<FlowValue> outputs;
    for (const ValueId output : routine.outputs) outputs.push_back(values[index(output)]);
    return outputs;
  }

  template <typename PlaceOf>
  std::vector<FlowValue> run_region(const RoutineStep& step, const std::vector<FlowValue>& given, const PlaceOf& place, uint32_t word) {
    std::vector<ShapeView> shapes;
    std::vector<BufferRange> read, written;
    for (const FlowValue& input : given) shapes.emplace_back(input.desc.shape), read.push_back(input.range);
    const auto bound = step.region->bind(shapes, {});
    std::vector<FlowValue> made;
    for (size_t j = 0; j < step.outputs.size(); ++j) {
      made.push_back(place(step.outputs[j], *bound->compiled()->outputs()[j].desc));
      written.push_back(made.back().range);
    }
    for (Dispatch& dispatch : dispatches_on(bound->compiled(), bound->persistent(), read, written, loop.arena_)) {
      Item& item = items.emplace_back();
      item.dispatch = std::move(dispatch);
      item.word = word;
    }
    return made;
  }

  // Both branches write to one place: one of them is skipped.
  template <typename PlaceOf>
  std::vector<FlowValue> choose(const RoutineStep& step, const std::vector<FlowValue>& given, const PlaceOf& place, uint32_t& word) {
    const uint32_t own = words(2);
    const bool in_parts = loop.has_loop_[step.first] || loop.has_loop_[step.second];
    Item& item = add_branch(in_parts ? Kind::split : Kind::choice, in_parts ? word : own, step.node);
    item.enclosing = word, item.to = own, item.condition = given[0].range;
    const std::span inputs(given.begin() + 1, given.end());
    std::vector<TensorDesc> input_descs, descs;
    for (const FlowValue& input : inputs) input_descs.push_back(input.desc);
    Survey(loop.program_).run(step.first, input_descs, descs);
    std::vector<FlowValue> made;
    for (size_t j = 0; j < descs.size(); ++j) made.push_back(place(step.outputs[j], descs[j]));
    uint32_t then = own, otherwise = own + 1;
    run(step.first, inputs, made, then);
    run(step.second, inputs, made, otherwise);
    if (in_parts) {
      const uint32_t after = words(1);
      hand_on(then, after, step.node);
      hand_on(otherwise, after, step.node);
      word = after;
    }
    return made;
  }

  Item& add_branch(Kind kind, uint32_t own, const std::string& label) {
    Item& item = items.emplace_back();
    item.is_branch = true;
    item.kind = kind, item.own = own;
    item.dispatch.label = label;
    return item;
  }

  void hand_on(uint32_t word, uint32_t to, const std::string& label, uint32_t counter = kNone) {
    Item& item = add_branch(Kind::move, word, label);
    item.to = to, item.counter = counter;
  }

  void copy(const FlowValue& from, const FlowValue& to, uint32_t word) {
    for (Dispatch& part : copy_dispatches(from.range, to.range)) {
      Item& item = items.emplace_back();
      item.dispatch = std::move(part);
      item.word = word;
    }
  }

  // One iteration of a loop in parts: its state is in `state` at words `start` and after it; where it is over, word `body` + 1 is on.
  void part(const RoutineStep& step, const std::vector<FlowValue>& state, const std::vector<FlowValue>& other,
            std::span<const FlowValue> invariants, uint32_t start, uint32_t body, uint32_t counter) {
    std::vector<FlowValue> values = state;
    values.insert(values.end(), invariants.begin(), invariants.end());
    uint32_t word = start;
    const auto condition = run(step.first, values, {}, word);
    Item& item = add_branch(Kind::split, word, step.node);
    item.to = body, item.counter = counter, item.condition = condition[0].range;
    word = body;
    run(step.second, values, other, word);
    for (size_t i = 0; i < state.size(); ++i) copy(other[i], state[i], word);
    hand_on(word, start, step.node);
  }

  // A loop inside: copies of an iteration, of which the next round runs more where they were too few.
  template <typename PlaceOf>
  std::vector<FlowValue> run_loop(const RoutineStep& step, const std::vector<FlowValue>& given, const PlaceOf& place, uint32_t& word) {
    const size_t kept = step.carried + step.state;
    const uint32_t start = words(1), body = words(2), counters = kCounters + 2 * next.inner++;
    std::vector<FlowValue> state, other, made;
    for (size_t i = 0; i < kept; ++i) {
      state.push_back(scratch(given[i].desc)), other.push_back(scratch(given[i].desc));
      copy(given[i], state[i], word);
    }
    hand_on(word, start, step.node, counters);
    const Place first = next;
    for (size_t i = 0; i < kInnerCopies; ++i) {
      next = first;
      part(step, state, other, std::span(given).subspan(kept), start, body, counters + 1);
    }
    word = body + 1;
    for (size_t i = 0; i < step.carried; ++i) {
      made.push_back(place(step.outputs[i], given[i].desc));
      copy(state[i], made[i], word);
    }
    return made;
  }

  // Of the loop itself; returns the word that tells that it is over, or none.
  uint32_t iteration(size_t set, bool guarded) {
    restart();
    if (!loop.inner_.empty()) {
      const uint32_t body = words(2);
      part(loop.step_, loop.states_[0], loop.states_[1], loop.invariants_, kGoesOn, body, kTrips);
      return body + 1;
    }
    std::vector<FlowValue> values = loop.states_[set % 2];
    values.insert(values.end(), loop.invariants_.begin(), loop.invariants_.end());
    uint32_t word = guarded ? kGoesOn : kNone;
    if (guarded) {
      const auto condition = run(loop.step_.first, values, {}, word);
      add_branch(Kind::loop, kGoesOn, loop.step_.node).condition = condition[0].range;
    }
    run(loop.step_.second, values, loop.states_[(set + 1) % 2], word);
    return kNone;
  }
};

std::unique_ptr<RoundsLoop> RoundsLoop::create(const FlowProgram& program, const RoutineStep& step, std::span<const FlowValue> values,
                                               SlotPool& pool, const RecordingOptions& options) {
  std::unique_ptr<RoundsLoop> loop(new RoundsLoop(program, step, options));
  if (!loop->build(values, pool)) loop.reset();
  return loop;
}

bool RoundsLoop::build(std::span<const FlowValue> values, SlotPool& pool) {
  const auto& context = program_.context;
  const size_t kept = step_.carried + step_.state;
  std::vector<TensorDesc> given;
  for (const FlowValue& value : values) given.push_back(value.desc);
  Survey survey(program_);
  if (!survey.loop(step_, given) || survey.dispatches > kMostDispatches) return false;
  inner_ = survey.inner;
  find_loops();
  most_iterations_ = std::min(kMostIterations, std::bit_floor(kMostRecorded / (survey.dispatches + 1)));
  if (survey.arena_bytes > 0) arena_ = Buffer::create(context, survey.arena_bytes);
  for (auto& set : states_)
    for (size_t i = 0; i < kept; ++i) {
      const TensorDesc desc(given[i].dtype, given[i].shape);
      FlowValue& value = set.emplace_back(FlowValue{desc, {}, pool.take(desc.bytes(), SlotUse::device), {}});
      value.range = {value.slot->device, 0, desc.bytes()};
    }
  // Their memory stays, but may hold other values when the loop is not under way.
  for (size_t i = kept; i < values.size(); ++i) invariants_.push_back({values[i].desc, values[i].range, {}, {}});
  make_status(context, 2 * inner_.size());
  Builder first{*this, &pool};
  first.iteration(0, true);
  words_ = Buffer::create(context, first.next.word * sizeof(uint32_t));
  if (!inner_.empty()) {
    zeros_ = Buffer::create(context, words_->bytes());
    fill({zeros_, 0, zeros_->bytes()}, 0);
  }
  if (context->feature("conditionalRendering")) return true;
  for (const Item& item : first.items)
    if (!item.is_branch && item.word != kNone)
      record_of_[{item.word, item.dispatch.groups[0], item.dispatch.groups[1], item.dispatch.groups[2]}] = 0;
  std::vector<std::array<uint32_t, 4>> records;
  for (auto& [record, number] : record_of_) number = static_cast<uint32_t>(records.size()), records.push_back(record);
  const auto bytes = std::as_bytes(std::span(records));
  records_ = Buffer::create(context, bytes.size());
  if (!bytes.empty()) upload({records_, 0, bytes.size()}, bytes);
  counts_ = Buffer::create(context, records.size() * kGuardCounts);
  return true;
}

// Which routines have a loop in them, at any depth. Those that a routine runs have higher numbers, or have been found before.
void RoundsLoop::find_loops() {
  has_loop_.assign(program_.routines.size(), false);
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = program_.routines.size(); i-- > 0;)
      for (const RoutineStep& step : program_.routines[i].steps) {
        const bool found = step.kind == RoutineStep::Kind::while_ ||
                           (step.kind == RoutineStep::Kind::if_ && (has_loop_[step.first] || has_loop_[step.second]));
        if (found && !has_loop_[i]) has_loop_[i] = changed = true;
      }
  }
}

std::vector<DeviceLoop::Inner> RoundsLoop::inner(uint64_t round) const {
  std::vector<Inner> all;
  for (size_t i = 0; i < inner_.size(); ++i) all.push_back({inner_[i], status(round)[2 + 2 * i], status(round)[3 + 2 * i]});
  return all;
}

Dispatch RoundsLoop::branch(const Item& item) const {
  const auto whole = [](const std::shared_ptr<Buffer>& buffer) { return buffer ? BufferRange{buffer, 0, buffer->bytes()} : BufferRange{}; };
  const auto number_of = [&](uint32_t word) {  // of the first record of this word or a later one
    const auto found = record_of_.lower_bound({word, 0, 0, 0});
    return found == record_of_.end() ? static_cast<uint32_t>(record_of_.size()) : found->second;
  };
  const uint32_t words = item.kind == Kind::choice ? 2 : item.kind == Kind::status ? 0 : 1;
  const bool all = !inner_.empty() && item.kind != Kind::status;  // words are handed on between places
  Dispatch dispatch = item.dispatch;
  dispatch.kernel = program_.context->attachment<KernelLibrary>()->find(program_.context, "branch.comp", Storage::fp32);
  StepBuilder builder(dispatch.kernel);
  const std::map<std::string, BufferRange> ranges{{"condition", item.condition},
                                                  {"words", whole(words_)},
                                                  {"records", whole(records_)},
                                                  {"counts", whole(counts_)},
                                                  {"status", whole(status_buffer_)}};
  for (const auto& binding : dispatch.kernel->interface().bindings) {
    builder.bind(binding.name, {});
    dispatch.buffers.push_back(ranges.at(binding.name));
  }
  dispatch.push = builder.set("kind", static_cast<uint32_t>(item.kind))
                      .set("own", item.own)
                      .set("enclosing", item.enclosing)
                      .set("to", item.to)
                      .set("counter", item.counter)
                      .set("first_record", all ? 0 : number_of(item.own))
                      .set("end_record", all ? static_cast<uint32_t>(record_of_.size()) : number_of(item.own + words))
                      .groups(1)
                      .build()
                      .push;
  return dispatch;
}

CommandList RoundsLoop::record(std::vector<Item> items) const {
  CommandList list(program_.context);
  for (Item& item : items) {
    if (item.is_branch) {
      list.dispatch(branch(item));
      continue;
    }
    const auto& groups = item.dispatch.groups;
    if (item.word != kNone && counts_)
      item.dispatch.guard = {counts_, record_of_.at({item.word, groups[0], groups[1], groups[2]}) * kGuardCounts, kGuardCounts};
    else if (item.word != kNone)
      item.dispatch.guard = {words_, item.word * sizeof(uint32_t), kGuardWord};
    list.dispatch(std::move(item.dispatch));
  }
  list.commit(options_);
  return list;
}

std::vector<BufferRange> RoundsLoop::entry() const {
  std::vector<BufferRange> ranges;
  for (const FlowValue& value : states_[0]) ranges.push_back(value.range);
  return ranges;
}

CommandList& RoundsLoop::begin() {
  if (!begin_) {
    Builder builder{*this, nullptr};
    if (zeros_)
      for (Dispatch& part : copy_dispatches({zeros_, 0, zeros_->bytes()}, {words_, 0, words_->bytes()}))
        builder.items.emplace_back().dispatch = std::move(part);
    builder.add_branch(Kind::begin, kGoesOn, step_.node);
    begin_ = std::make_unique<CommandList>(record(std::move(builder.items)));
  }
  return *begin_;
}

CommandList& RoundsLoop::round(size_t iterations) {
  const auto found = recorded_.find({true, iterations});
  if (found != recorded_.end()) return found->second;
  Builder builder{*this, nullptr};
  uint32_t over = kNone;
  for (size_t i = 0; i < iterations; ++i) over = builder.iteration(i, true);
  Item& end = builder.add_branch(Kind::status, kGoesOn, step_.node);
  end.enclosing = over, end.counter = 2 * static_cast<uint32_t>(inner_.size());
  return recorded_.try_emplace({true, iterations}, record(std::move(builder.items))).first->second;
}

CommandList& RoundsLoop::repeats(size_t iterations) {
  const auto found = recorded_.find({false, iterations});
  if (found != recorded_.end()) return found->second;
  Builder builder{*this, nullptr};
  for (size_t i = 0; i < iterations; ++i) builder.iteration(i, false);
  return recorded_.try_emplace({false, iterations}, record(std::move(builder.items))).first->second;
}

}  // namespace pumice

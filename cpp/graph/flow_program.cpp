#include "graph/flow_program.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <deque>
#include <list>
#include <map>

#include "core/error.h"
#include "graph/device_loop.h"
#include "graph/flow_recordings.h"

namespace pumice {
namespace {

using Clock = std::chrono::steady_clock;

// Of a round of a loop, at most: as long may a timeout be late. Short rounds make the host look more often than it has to.
constexpr double kRoundSeconds = 5e-3, kShortRoundSeconds = 20e-3;
constexpr size_t kShortRound = 64;    // iterations
constexpr size_t kMostLoops = 32;     // that are kept ready
constexpr size_t kMostInFlight = 64;  // submissions that nobody has waited for
constexpr auto kSignalPeriod = std::chrono::milliseconds(50);

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

double seconds_since(Clock::time_point begin) {
  return seconds_between(begin, Clock::now());
}

std::string seconds_text(double seconds) {
  std::string text = std::to_string(seconds);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text + " s";
}

// A WHILE under way.
struct Loop {
  LoopReport* report = nullptr;
  Clock::time_point entered;
  uint64_t trips = 0;
  bool in_body = false;
  std::vector<FlowValue> values;  // what its graphs are run on next
};

// A routine under way.
struct Frame {
  const Routine* routine = nullptr;
  size_t step = 0;
  std::vector<FlowValue> values;  // by value of the graph
  Loop loop;                      // of the step at hand
};

class StepwiseLease : public FlowLease {
 public:
  StepwiseLease(std::shared_ptr<const FlowProgram> program, const RecordingOptions& options)
      : program_(std::move(program)), is_measured_(options.total_time), pool_(program_->context), recordings_(program_->context, options) {}

  const TensorDesc& input_desc(size_t i) const override { return inputs_.at(i).desc; }
  const TensorDesc& output_desc(size_t j) const override { return results_.at(j).desc; }
  std::byte* input(size_t i) override { return inputs_.at(i).slot->bytes; }
  const std::byte* output(size_t j) const override {
    const FlowValue& result = results_.at(j);
    return result.host ? result.host->data : result.slot->bytes;
  }
  uint64_t last_submission() const override { return last_ ? last_->id() : 0; }
  RunReport report() const override { return report_; }
  std::optional<double> device_seconds() const override { return is_measured_ ? std::optional(device_seconds_) : std::nullopt; }

  void prepare(std::span<const ShapeView> shapes) override {
    const Routine& main = program_->routines[0];
    check_shapes(program_->name, main.input_values, shapes);
    results_.clear();
    inputs_.resize(shapes.size());
    for (size_t i = 0; i < shapes.size(); ++i) {
      FlowValue& input = inputs_[i];
      input.host.reset();
      if (input.slot && input.desc.shape.size() == shapes[i].size() && std::ranges::equal(input.desc.shape, shapes[i])) continue;
      input = {};
      input = made(TensorDesc(main.input_values[i].dtype, {shapes[i].begin(), shapes[i].end()}), SlotUse::upload);
    }
  }

  Submission start(const RunLimits& limits) override {
    limits_ = &limits;
    begin_ = Clock::now();
    next_signal_ = begin_ + kSignalPeriod;
    report_ = {};
    device_seconds_ = 0;
    loops_.clear();
    in_flight_.clear();
    pool_.trim();
    depth_ = 0;
    try {
      copy_inputs();
      enter(0, inputs_, program_->name);
      while (depth_ > 0) advance();
      show_results();
      if (report_.submissions == 0) submit(recordings_.copies({}));
      wait();
    } catch (...) {
      for (Frame& frame : frames_) frame = {};
      depth_ = 0;
      throw;
    }
    for (const auto& [step, loop] : loops_) report_.loops.push_back(loop);
    return *last_;
  }

 private:
  FlowValue made(TensorDesc desc, SlotUse use) {
    const uint64_t bytes = desc.bytes();
    FlowValue value{std::move(desc), {}, pool_.take(bytes, use), {}};
    value.range = {value.slot->device, 0, bytes};
    return value;
  }

  void submit(CommandList& list) {
    if (in_flight_.size() >= kMostInFlight) {
      program_->context->wait(in_flight_[kMostInFlight / 2], remaining(), limits_->interrupted);
      in_flight_.erase(in_flight_.begin(), in_flight_.begin() + kMostInFlight / 2 + 1);
    }
    last_ = list.exec();
    in_flight_.push_back(last_->id());
    ++report_.submissions;
    report_.dispatches += list.recording()->dispatch_count();
    if (!is_measured_) return;
    wait();  // one after the other: a list has one pair of time stamps
    device_seconds_ += last_->device_time().value_or(0);
  }

  std::optional<double> remaining() const {
    if (!limits_->timeout_seconds) return {};
    return std::max(0.0, *limits_->timeout_seconds - seconds_since(begin_));
  }

  // Throws where the execution's time is over, or somebody interrupts it.
  void check_time(const std::string& next) {
    if (const auto now = Clock::now(); limits_->interrupted && now >= next_signal_) {
      limits_->interrupted();
      next_signal_ = now + kSignalPeriod;
    }
    if (limits_->timeout_seconds && seconds_since(begin_) >= *limits_->timeout_seconds)
      throw TimeoutError(
          "execution of '" + program_->name + "' took longer than " + seconds_text(*limits_->timeout_seconds) + "; next was '" + next + "'",
          true);
  }

  void wait() {
    if (!last_) return;
    program_->context->wait(last_->id(), remaining(), limits_->interrupted);
    in_flight_.clear();
  }

  // The elements, for which the host waits where the device alone has them.
  const std::byte* read(FlowValue& value) {
    if (value.host) return value.host->data;
    ++report_.host_syncs;
    wait();
    if (value.host_visible()) {
      value.host = std::make_shared<const HostTensor>(HostTensor::copy_of(value.desc, value.slot->bytes));
    } else {
      std::vector<std::byte> bytes(value.range.bytes);
      if (!bytes.empty()) download(value.range, bytes, limits_->interrupted);
      value.host = std::make_shared<const HostTensor>(HostTensor::copy_of(value.desc, bytes.data()));
    }
    return value.host->data;
  }

  void copy_inputs() {
    std::vector<std::pair<BufferRange, BufferRange>> ranges;
    for (FlowValue& input : inputs_) {
      if (input.slot->is_copied()) ranges.push_back({{input.slot->host, 0, input.range.bytes}, input.range});
      input.host = std::make_shared<const HostTensor>(HostTensor{input.desc, input.slot, input.slot->bytes});
    }
    if (!ranges.empty()) submit(recordings_.copies(ranges));
  }

  // Begins a routine; `user` is the node that runs it.
  void enter(size_t number, std::span<const FlowValue> inputs, const std::string& user) {
    const Routine& routine = program_->routines[number];
    if (frames_.size() <= depth_) frames_.emplace_back();
    Frame& frame = frames_[depth_];
    frame.routine = &routine;
    frame.step = 0;
    frame.values.resize(routine.read_by_host.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      check_operand(routine, i, inputs[i], user);
      frame.values[static_cast<size_t>(routine.inputs[i])] = inputs[i];
    }
    for (const RoutineConstant& constant : routine.constants)
      frame.values[static_cast<size_t>(constant.value)] = {
          constant.host.desc, constant.range, {}, std::make_shared<const HostTensor>(constant.host)};
    ++depth_;
  }

  // What a graph declares of its inputs holds for every value that it is run on.
  void check_operand(const Routine& routine, size_t i, const FlowValue& given, const std::string& user) const {
    const ProgramValue& declared = routine.input_values[i];
    if (!declared.shape) return;
    bool fits = declared.shape->size() == given.desc.shape.size();
    for (size_t axis = 0; fits && axis < declared.shape->size(); ++axis)
      fits = (*declared.shape)[axis] == kUnknownSize || (*declared.shape)[axis] == given.desc.shape[axis];
    if (fits) return;
    GraphValue expected;
    expected.dtype = declared.dtype, expected.shape = declared.shape;
    throw GraphError(user, "input '" + declared.name + "' of graph '" + routine.name + "': " + to_string(expected) + " expected, given " +
                               to_string(given.desc));
  }

  Frame& top() { return frames_[depth_ - 1]; }

  void advance() {
    Frame& frame = top();
    if (frame.step == frame.routine->steps.size()) return leave(frame);
    const RoutineStep& step = frame.routine->steps[frame.step];
    check_time(step.kind == RoutineStep::Kind::run ? frame.routine->name : step.node);
    switch (step.kind) {
      case RoutineStep::Kind::run:
        return run(frame, step);
      case RoutineStep::Kind::if_:
        return choose(frame, step);
      case RoutineStep::Kind::while_:
        return begin_loop(frame, step);
    }
  }

  static FlowValue& value(Frame& frame, ValueId id) { return frame.values[static_cast<size_t>(id)]; }

  void run(Frame& frame, const RoutineStep& step) {
    read_.clear(), made_.clear(), shapes_.clear(), elements_.clear();
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      FlowValue& input = value(frame, step.inputs[i]);
      if (step.region->reads_values()) elements_.push_back(step.region->reads_values(i) ? read(input) : nullptr);
      read_.push_back(input);
    }
    for (const FlowValue& input : read_) shapes_.emplace_back(input.desc.shape);
    const auto bound = step.region->bind(shapes_, elements_);
    for (size_t j = 0; j < step.outputs.size(); ++j) {
      const bool shown = frame.routine->read_by_host[static_cast<size_t>(step.outputs[j])];
      FlowValue& output = made_.emplace_back(made(*bound->compiled()->outputs()[j].desc, shown ? SlotUse::readback : SlotUse::device));
      if (const auto& host = bound->output_host(j)) output.host = std::make_shared<const HostTensor>(*host);
    }
    submit(recordings_.run(bound, read_, made_));
    for (size_t j = 0; j < step.outputs.size(); ++j) value(frame, step.outputs[j]) = std::move(made_[j]);
    read_.clear(), made_.clear();
    end_step(frame, step);
  }

  void choose(Frame& frame, const RoutineStep& step) {
    if (step.inputs[0] == kAbsent) throw GraphError(step.node, "the condition of an IF is expected, given none", "B2.13");
    const bool taken = is_true(value(frame, step.inputs[0]));
    std::vector<FlowValue> inputs;
    for (size_t i = 1; i < step.inputs.size(); ++i) inputs.push_back(value(frame, step.inputs[i]));
    enter(taken ? step.first : step.second, inputs, step.node);
  }

  void begin_loop(Frame& frame, const RoutineStep& step) {
    Loop& loop = frame.loop;
    loop = {&loops_[&step], Clock::now(), 0, false, {}};
    loop.report->node = step.node, loop.report->kind = "host";
    ++loop.report->entries;
    for (const ValueId input : step.inputs) loop.values.push_back(value(frame, input));
    if (DeviceLoop* device = device_loop(step, loop.values)) return run_on_device(frame, step, *device);
    enter(step.first, loop.values, step.node);
  }

  // The outermost frame has run all its steps.
  void leave(Frame& frame) {
    std::vector<FlowValue> results;
    for (const ValueId output : frame.routine->outputs) results.push_back(value(frame, output));
    frame.values.clear();
    if (--depth_ == 0)
      results_ = std::move(results);
    else
      accept(top(), std::move(results));
  }

  // What the graph that the step at hand runs has made.
  void accept(Frame& frame, std::vector<FlowValue> results) {
    const RoutineStep& step = frame.routine->steps[frame.step];
    if (step.kind == RoutineStep::Kind::if_) return end_step(frame, step, results);
    Loop& loop = frame.loop;
    if (loop.in_body) {
      std::ranges::move(results, loop.values.begin());
      ++loop.trips, ++loop.report->trips;
      loop.in_body = false;
      return enter(step.first, loop.values, step.node);
    }
    const uint64_t waits = report_.host_syncs;
    const bool goes_on = is_true(results[0]);
    loop.report->host_syncs += report_.host_syncs - waits;
    if (!goes_on) {
      results = std::move(loop.values);
      loop = {};
      return end_step(frame, step, results);
    }
    if (is_over(loop)) fail_loop(step, loop.trips);
    loop.in_body = true;
    enter(step.second, loop.values, step.node);
  }

  bool is_true(FlowValue& condition) {
    if (condition.host) return condition.host->data[0] != std::byte{0};
    return read(condition)[0] != std::byte{0};
  }

  void end_step(Frame& frame, const RoutineStep& step, std::span<FlowValue> results = {}) {
    for (size_t j = 0; j < results.size() && j < step.outputs.size(); ++j) value(frame, step.outputs[j]) = std::move(results[j]);
    for (const ValueId id : step.released) value(frame, id) = {};
    ++frame.step;
  }

  // Brings to the host what it does not see.
  void show_results() {
    std::vector<std::pair<BufferRange, BufferRange>> ranges;
    for (FlowValue& result : results_) {
      if (result.host || result.host_visible()) continue;
      const FlowValue shown = made(result.desc, SlotUse::readback);
      ranges.push_back({result.range, {shown.slot->host, 0, result.range.bytes}});
      result.slot = shown.slot;
    }
    if (!ranges.empty()) submit(recordings_.copies(ranges));
  }

  // One that has been made for such values, or a new one; null where the host has to drive it.
  DeviceLoop* device_loop(const RoutineStep& step, std::span<const FlowValue> values) {
    const size_t kept = step.carried + step.state;
    const auto matches = [&](const ReadyLoop& ready) {
      if (ready.step != &step) return false;
      for (size_t i = 0; i < values.size(); ++i)
        if (ready.shapes[i] != values[i].desc.shape || (i >= kept && ready.memory[i - kept] != values[i].range.buffer->id())) return false;
      return true;
    };
    for (auto one = ready_.begin(); one != ready_.end(); ++one)
      if (matches(*one)) {
        ready_.splice(ready_.begin(), ready_, one);
        return ready_.front().loop.get();
      }
    ReadyLoop& made = ready_.emplace_front();
    made.step = &step;
    for (size_t i = 0; i < values.size(); ++i) {
      made.shapes.push_back(values[i].desc.shape);
      if (i >= kept) made.memory.push_back(values[i].range.buffer->id()), made.held.push_back(values[i].slot);
    }
    made.loop = DeviceLoop::create(*program_, step, values, pool_, recordings_.options());
    if (ready_.size() > kMostLoops) ready_.pop_back();
    return ready_.front().loop.get();
  }

  // How often a loop that counts runs, where the host knows from where to where.
  static std::optional<uint64_t> known_trips(const RoutineStep& step, std::span<const FlowValue> values) {
    if (!step.counter) return {};
    const auto integer = [](const FlowValue& value) -> std::optional<int64_t> {
      if (!value.host || value.host->desc.elements() != 1) return {};
      int32_t number = 0;
      std::memcpy(&number, value.host->data, sizeof number);
      return number;
    };
    const auto start = integer(values[step.counter->counter]);
    const auto end = step.counter->limit_value ? integer(values[*step.counter->limit_value]) : std::optional(step.counter->limit);
    return start && end ? step.counter->trips(*start, *end) : std::nullopt;
  }

  // Rounds in flight: one runs while the host looks at what the one before has left.
  struct Round {
    uint64_t id;
    size_t iterations;
  };

  // The largest power of two of iterations that a round may have now, from `wished` down.
  static size_t allowed(const DeviceLoop& device, size_t wished) {
    const size_t least = device.least_iterations();
    size_t most = std::clamp(wished, least, device.most_iterations());
    const auto seconds = [&] { return device.iteration_seconds * static_cast<double>(most); };
    while (most > least && seconds() > (most > kShortRound ? kRoundSeconds : kShortRoundSeconds)) most /= 2;
    return most;
  }

  // Waits for the first of the rounds; how long the device took is measured where it had nothing else to do.
  void finish_round(DeviceLoop& device, std::deque<Round>& rounds) {
    program_->context->wait(rounds.front().id, remaining(), limits_->interrupted);
    ++report_.host_syncs;
    const auto now = Clock::now();
    const double seconds = seconds_between(std::max(round_begin_, round_submitted_[rounds.front().id]), now);
    round_submitted_.erase(rounds.front().id);
    round_begin_ = now;
    const double each = seconds / static_cast<double>(rounds.front().iterations);
    if (device.iteration_seconds == 0 || each < device.iteration_seconds) device.iteration_seconds = each;
    rounds.pop_front();
  }

  void submit_round(CommandList& list, size_t iterations, std::deque<Round>& rounds) {
    submit(list);
    round_submitted_[last_->id()] = Clock::now();
    rounds.push_back({last_->id(), iterations});
  }

  [[noreturn]] void fail_loop(const RoutineStep& step, uint64_t trips) const {
    throw TimeoutError("loop '" + step.node + "' of '" + program_->name + "' ran longer than " + seconds_text(*limits_->loop_seconds) +
                           "; stopped after " + std::to_string(trips) + " iterations",
                       true);
  }

  bool is_over(const Loop& loop) const { return limits_->loop_seconds && seconds_since(loop.entered) >= *limits_->loop_seconds; }

  void run_on_device(Frame& frame, const RoutineStep& step, DeviceLoop& device) {
    Loop& loop = frame.loop;
    const auto trips = known_trips(step, loop.values);
    const bool counted = trips && device.has_repeats();
    loop.report->kind = counted ? "counted" : device.kind();
    const uint64_t waits = report_.host_syncs;
    round_submitted_.clear();
    round_begin_ = loop.entered;
    std::vector<std::pair<BufferRange, BufferRange>> entry;
    const auto targets = device.entry();
    for (size_t i = 0; i < targets.size(); ++i) entry.push_back({loop.values[i].range, targets[i]});
    if (trips != 0u) submit(recordings_.copies(entry));
    loop.trips = trips == 0u ? 0 : counted ? repeat(step, loop, device, *trips) : iterate(step, loop, device);
    device.last_trips = loop.trips;
    loop.report->trips += loop.trips;
    loop.report->host_syncs += report_.host_syncs - waits;
    std::vector<FlowValue> results;
    if (loop.trips == 0) {
      results.assign(loop.values.begin(), loop.values.begin() + static_cast<std::ptrdiff_t>(step.carried));
    } else {
      std::vector<std::pair<BufferRange, BufferRange>> exit;
      for (size_t i = 0; i < step.carried; ++i) {
        const BufferRange last = device.result(i, loop.trips);
        const bool shown = frame.routine->read_by_host[static_cast<size_t>(step.outputs[i])];
        results.push_back(made(loop.values[i].desc, shown ? SlotUse::readback : SlotUse::device));
        exit.push_back({last, results.back().range});
        if (const auto& slot = results.back().slot; shown && slot->is_copied()) exit.push_back({last, {slot->host, 0, last.bytes}});
      }
      submit(recordings_.copies(exit));
    }
    loop = {};
    end_step(frame, step, results);
  }

  // The body alone, as often as is known.
  uint64_t repeat(const RoutineStep& step, const Loop& loop, DeviceLoop& device, uint64_t trips) {
    std::deque<Round> rounds;
    size_t wished = device.last_trips > 0 ? device.most_iterations() : device.least_iterations();
    for (uint64_t done = 0; done < trips; wished = std::min(wished * 2, device.most_iterations())) {
      if (is_over(loop)) fail_loop(step, done);
      check_time(step.node);
      size_t iterations = allowed(device, wished);
      while (iterations > trips - done) iterations /= 2;
      submit_round(device.repeats(iterations), iterations, rounds);
      done += iterations;
      if (rounds.size() > 2) finish_round(device, rounds);
    }
    return trips;
  }

  uint64_t iterate(const RoutineStep& step, const Loop& loop, DeviceLoop& device) {
    submit(device.begin());
    std::deque<Round> rounds;
    uint64_t ended = 0, trips = 0;  // rounds, and iterations of them
    // A loop that has run before begins with a round that could hold it.
    size_t wished = std::bit_ceil(std::min<uint64_t>(device.last_trips + 1, device.most_iterations()));
    const auto submit_next = [&] {
      const size_t iterations = allowed(device, wished);
      wished = iterations * 2;
      submit_round(device.round(iterations), iterations, rounds);
      recorded_iterations_ += iterations;
    };
    recorded_iterations_ = 0;
    submit_next();
    for (;;) {
      const bool long_enough = ended > 0;  // the first round may hold all of it
      if (long_enough) submit_next();
      finish_round(device, rounds);
      trips += static_cast<uint32_t>(device.trips(ended) - static_cast<uint32_t>(trips));
      const bool goes_on = device.goes_on(ended);
      ++ended;
      if (is_over(loop) && (goes_on || (*limits_->loop_seconds == 0 && trips > 0))) fail_loop(step, trips);
      if (!goes_on) {
        if (device.has_repeats()) loop.report->wasted += recorded_iterations_ - trips;
        return trips;
      }
      check_time(step.node);
      if (rounds.empty()) submit_next();
    }
  }

  struct ReadyLoop {
    const RoutineStep* step = nullptr;
    std::vector<Shape> shapes;
    std::vector<uint64_t> memory;                       // of the invariant values, by buffer id
    std::vector<std::shared_ptr<const HostSlot>> held;  // which stays where it is
    std::unique_ptr<DeviceLoop> loop;
  };

  std::shared_ptr<const FlowProgram> program_;
  bool is_measured_;
  double device_seconds_ = 0;
  SlotPool pool_;
  FlowRecordings recordings_;
  std::vector<FlowValue> inputs_, results_;
  const RunLimits* limits_ = nullptr;
  Clock::time_point begin_, next_signal_;
  std::deque<Frame> frames_;  // by depth; those above it are kept for their memory
  size_t depth_ = 0;
  std::map<const RoutineStep*, LoopReport> loops_;
  RunReport report_;
  std::vector<uint64_t> in_flight_;
  std::optional<Submission> last_;
  std::list<ReadyLoop> ready_;                             // the last used first
  std::map<uint64_t, Clock::time_point> round_submitted_;  // by id, of rounds in flight
  Clock::time_point round_begin_;                          // when the last one ended
  uint64_t recorded_iterations_ = 0;                       // of the loop at hand
  // Of the run at hand.
  std::vector<FlowValue> read_, made_;
  std::vector<ShapeView> shapes_;
  std::vector<const std::byte*> elements_;
};

}  // namespace

std::shared_ptr<FlowLease> FlowLease::create(std::shared_ptr<const FlowProgram> program, const RecordingOptions& options) {
  return std::make_shared<StepwiseLease>(std::move(program), options);
}

}  // namespace pumice

#include "graph/control_flow/control_flow_lease.h"

#include <algorithm>
#include <deque>
#include <map>

#include "core/error.h"
#include "graph/description/graph_path.h"
#include "graph/control_flow/branch_driver.h"
#include "graph/control_flow/control_flow_session.h"
#include "graph/control_flow/loop_driver.h"
#include "graph/control_flow/scalar_loop.h"

namespace pumice {
namespace {

// State of a WHILE that the host drives.
struct Loop {
  LoopReport* report = nullptr;
  FlowSession::Clock::time_point entered;
  uint64_t trips = 0;
  bool in_body = false;
  std::vector<FlowValue> values;  // operands of the graph that runs next
};

// State of a running routine.
struct Frame {
  const Routine* routine = nullptr;
  std::string_view role;  // the routine's role in its node: "then", "body"
  size_t step = 0;
  std::vector<FlowValue> values;  // one per value of the graph
  Loop loop;                      // loop of the current step
};

class RoutineLease : public FlowLease {
 public:
  RoutineLease(std::shared_ptr<const FlowProgram> program, const RecordingOptions& options)
      : program_(std::move(program)),
        checks_indices_(program_->checks_indices()),
        session_(program_->context, program_->name, options),
        loops_on_device_(*program_, session_),
        choices_on_device_(*program_, session_) {}

  const TensorDesc& input_desc(size_t i) const override { return inputs_.at(i).desc; }
  const TensorDesc& output_desc(size_t j) const override { return results_.at(j).desc; }
  std::byte* input(size_t i) override { return inputs_.at(i).slot->bytes; }
  const std::byte* output(size_t j) const override {
    const FlowValue& result = results_.at(j);
    return result.host ? result.host->data : result.slot->bytes;
  }
  uint64_t last_submission() const override { return session_.last() ? session_.last()->id() : 0; }
  RunReport report() const override { return session_.report; }
  std::optional<double> device_seconds() const override { return session_.device_seconds(); }

  void fill_memory(uint32_t word, const Interrupted& interrupted = {}) override {
    results_.clear();  // returns their memory to the pool
    session_.pool().fill_free(word, interrupted);
    session_.recordings().fill_arena(word, interrupted);
  }

  void make_inputs(std::span<const ShapeView> shapes) override {
    const Routine& main = program_->routines[0];
    check_shapes(program_->name, main.input_values, shapes);
    results_.clear();
    inputs_.resize(shapes.size());
    for (size_t i = 0; i < shapes.size(); ++i) {
      FlowValue& input = inputs_[i];
      input.host.reset();
      if (input.slot && input.desc.shape.size() == shapes[i].size() && std::ranges::equal(input.desc.shape, shapes[i])) continue;
      input = {};
      input = session_.made(TensorDesc(main.input_values[i].dtype, {shapes[i].begin(), shapes[i].end()}), HostSlotUse::upload);
    }
  }

  FlowObservation observe(const RunLimits& limits, uint64_t most) override {
    observer_.emplace(Observer{most, {}, {}});
    start(limits);
    FlowObservation found = std::move(observer_->found);
    for (size_t j = 0; j < results_.size(); ++j) found.outputs.push_back(HostTensor::copy_of(output_desc(j).packed(), output(j)));
    for (const Routine& routine : program_->routines)
      for (const RoutineStep& step : routine.steps)
        if (step.region) found.regions.push_back({routine.name, observer_->runs[&step], std::min(observer_->runs[&step], most)});
    observer_.reset();
    return found;
  }

  Submission start(const RunLimits& limits, std::span<std::byte* const> /*targets*/ = {}) override {
    session_.begin(limits);
    loops_.clear();
    depth_ = 0;
    try {
      copy_inputs();
      enter(0, inputs_, program_->name, "");
      told_of_path([&] { return path(); },
                   [&] {
                     while (depth_ > 0) advance();
                   });
      show_results();
      // start() returns a submission: an execution without work submits an empty list.
      if (session_.report.submissions == 0) session_.submit(session_.recordings().copies({}));
      session_.wait();
    } catch (...) {
      for (Frame& frame : frames_) frame = {};
      depth_ = 0;
      observer_.reset();
      throw;
    }
    for (const auto& [step, loop] : loops_) session_.report.loops.push_back(loop);
    return *session_.last();
  }

 private:
  // Returns the elements of a value, waiting for the device if necessary.
  const std::byte* read(FlowValue& value) {
    if (value.host) return value.host->data;
    session_.wait();
    if (value.host_visible()) {
      value.host = std::make_shared<const HostTensor>(HostTensor::copy_of(value.desc, value.slot->bytes));
    } else {
      std::vector<std::byte> bytes(value.range.bytes);
      if (!bytes.empty()) download(value.range, bytes, session_.limits().interrupted);
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
    if (!ranges.empty()) session_.submit(session_.recordings().copies(ranges));
  }

  // Returns the path from the outermost graph to the current one; empty in the outermost.
  std::string path() const {
    if (depth_ < 2) return {};
    std::string text = path_begin(frames_[0].routine->name);
    for (size_t depth = 0; depth + 1 < depth_; ++depth) {
      const RoutineStep& step = frames_[depth].routine->steps[frames_[depth].step];
      const Frame& inner = frames_[depth + 1];
      text += (depth ? " / " : "") +
              path_part(step.kind == RoutineStep::Kind::if_ ? "If" : "While", step.own_name, inner.role, inner.routine->name);
    }
    return text;
  }

  // Enters a routine; `user`: the node that runs it, `role`: its role in that node.
  void enter(size_t number, std::span<const FlowValue> inputs, const std::string& user, std::string_view role) {
    const Routine& routine = program_->routines[number];
    if (frames_.size() <= depth_) frames_.emplace_back();
    Frame& frame = frames_[depth_];
    frame.routine = &routine;
    frame.role = role;
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

  // Rejects a value that does not match the declared input of a routine's graph.
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
    session_.check_time(step.kind == RoutineStep::Kind::region ? frame.routine->name : step.node);
    switch (step.kind) {
      case RoutineStep::Kind::region:
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
    bool reads = false;
    const bool hands_on = step.region->reads_values() || step.region->checks_values();
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      FlowValue& input = value(frame, step.inputs[i]);
      reads = reads || (step.region->reads_values(i) && !input.host);
      if (step.region->reads_values(i)) read(input);
      if (hands_on) elements_.push_back(input.host ? input.host->data : nullptr);
      read_.push_back(input);
    }
    if (reads) note_read_back();
    for (const FlowValue& input : read_) shapes_.emplace_back(input.desc.shape);
    const auto bound = session_.off_the_clock([&] { return step.region->bind(shapes_, elements_); });
    ObservedRun* const observed = observer_ ? session_.off_the_clock([&] { return observe_run(frame, step); }) : nullptr;
    for (size_t j = 0; j < step.outputs.size(); ++j) {
      const bool shown = frame.routine->read_by_host[static_cast<size_t>(step.outputs[j])];
      FlowValue& output =
          made_.emplace_back(session_.made(*bound->compiled()->outputs()[j].desc, shown ? HostSlotUse::readback : HostSlotUse::device));
      if (const auto& host = bound->output_host(j)) output.host = std::make_shared<const HostTensor>(*host);
    }
    for (size_t k = 0; k < bound->index_checks().size(); ++k)
      made_.push_back(session_.made(*bound->compiled()->outputs()[step.outputs.size() + k].desc, HostSlotUse::readback));
    session_.submit(session_.off_the_clock([&]() -> CommandList& { return session_.recordings().run(bound, read_, made_); }));
    if (observed) session_.off_the_clock([&] { compare_run(*observed, step); });
    if (!bound->index_checks().empty()) raise_found(bound->index_checks(), [&](size_t k) { return read(made_[step.outputs.size() + k]); });
    for (size_t j = 0; j < step.outputs.size(); ++j) value(frame, step.outputs[j]) = std::move(made_[j]);
    read_.clear(), made_.clear();
    end_step(frame, step);
  }

  // Reruns a region on its inputs to observe what its kernels store; null if it has been observed often enough.
  ObservedRun* observe_run(Frame& frame, const RoutineStep& step) {
    const uint64_t number = observer_->runs[&step]++;
    if (number >= observer_->most) return nullptr;
    ObservedRun run{frame.routine->name, number, {}, step.region->observed(shapes_, elements_, {}), {}};
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      FlowValue& input = value(frame, step.inputs[i]);
      run.observed->write_input(i, read(input));
      run.inputs.emplace_back(step.region->inputs()[i].name, *input.host);
    }
    program_->context->wait(run.observed->start(session_.limits().interrupted).id(), {}, session_.limits().interrupted);
    observer_->found.runs.push_back(std::move(run));
    return &observer_->found.runs.back();
  }

  // Records the outputs of a region that differ bitwise from the observed run.
  void compare_run(ObservedRun& run, const RoutineStep& step) {
    for (size_t j = 0; j < step.outputs.size(); ++j) {
      if (made_[j].host) continue;  // the elements were known at binding
      const std::byte* const made = read(made_[j]);
      const uint64_t bytes = made_[j].desc.element_bytes();
      if (!std::equal(made, made + bytes, run.observed->output(j))) run.differing.push_back(step.region->outputs()[j].name);
    }
  }

  // Whether the device may run a loop alone: while kernels are observed, only if a single kernel runs it.
  bool may_run_alone(const RoutineStep& step, std::span<const FlowValue> values) {
    if (checks_indices_) return false;
    if (!observer_) return true;
    if (!step.scalar || !ScalarLoop::create(*program_, step, values, session_.recordings().options())) return false;
    observer_->found.single_loops.push_back(step.node);
    return true;
  }

  // Counts a wait for elements that shapes depend on, in the whole execution and the innermost host-driven loop.
  void note_read_back() {
    ++session_.report.host_syncs, ++session_.report.read_backs;
    for (size_t depth = depth_; depth-- > 0;)
      if (LoopReport* report = frames_[depth].loop.report) {
        ++report->host_syncs;
        return;
      }
  }

  // Returns, for each output of a step, whether the host reads it.
  static std::vector<bool> shown_results(const Frame& frame, const RoutineStep& step) {
    std::vector<bool> shown;
    for (const ValueId output : step.outputs) shown.push_back(frame.routine->read_by_host[static_cast<size_t>(output)]);
    return shown;
  }

  void choose(Frame& frame, const RoutineStep& step) {
    if (step.inputs[0] == kAbsent) throw GraphError(step.node, "the condition of an IF is expected, given none", "B2.13");
    std::vector<FlowValue> given;
    for (const ValueId input : step.inputs) given.push_back(value(frame, input));
    if (!given[0].host && step.first != step.second && !checks_indices_ && !observer_)
      if (auto results = choices_on_device_.run(step, given, shown_results(frame, step))) return end_step(frame, step, *results);
    const bool taken = is_true(given[0]);
    enter(taken ? step.first : step.second, std::span(given).subspan(1), step.node, taken ? "then" : "else");
  }

  void begin_loop(Frame& frame, const RoutineStep& step) {
    Loop& loop = frame.loop;
    loop = {&loops_[&step], session_.loop_clock(), 0, false, {}};
    loop.report->node = step.node, loop.report->kind = "host";
    ++loop.report->entries;
    for (const ValueId input : step.inputs) loop.values.push_back(value(frame, input));
    if (may_run_alone(step, loop.values))
      if (auto results = loops_on_device_.run(step, loop.values, shown_results(frame, step), loops_)) {
        loop = {};
        return end_step(frame, step, *results);
      }
    enter(step.first, loop.values, step.node, "condition");
  }

  // Leaves a routine that has run all its steps.
  void leave(Frame& frame) {
    std::vector<FlowValue> results;
    for (const ValueId output : frame.routine->outputs) results.push_back(value(frame, output));
    frame.values.clear();
    if (--depth_ == 0)
      results_ = std::move(results);
    else
      accept(top(), std::move(results));
  }

  // Receives the results of the graph that the current step ran.
  void accept(Frame& frame, std::vector<FlowValue> results) {
    const RoutineStep& step = frame.routine->steps[frame.step];
    if (step.kind == RoutineStep::Kind::if_) return end_step(frame, step, results);
    Loop& loop = frame.loop;
    if (loop.in_body) {
      std::ranges::move(results, loop.values.begin());
      ++loop.trips, ++loop.report->trips;
      loop.in_body = false;
      return enter(step.first, loop.values, step.node, "condition");
    }
    const uint64_t waits = session_.report.host_syncs;
    const bool goes_on = is_true(results[0]);
    loop.report->host_syncs += session_.report.host_syncs - waits;
    if (!goes_on) {
      results = std::move(loop.values);
      loop = {};
      return end_step(frame, step, results);
    }
    if (session_.is_loop_over(loop.entered)) session_.fail_loop(step.node, loop.trips);
    loop.in_body = true;
    enter(step.second, loop.values, step.node, "body");
  }

  bool is_true(FlowValue& condition) {
    if (!condition.host) ++session_.report.host_syncs;
    return read(condition)[0] != std::byte{0};
  }

  void end_step(Frame& frame, const RoutineStep& step, std::span<FlowValue> results = {}) {
    for (size_t j = 0; j < results.size() && j < step.outputs.size(); ++j) value(frame, step.outputs[j]) = std::move(results[j]);
    for (const ValueId id : step.released) value(frame, id) = {};
    ++frame.step;
  }

  // Copies results to host-visible memory where necessary.
  void show_results() {
    std::vector<std::pair<BufferRange, BufferRange>> ranges;
    for (FlowValue& result : results_) {
      if (result.host || result.host_visible()) continue;
      const FlowValue shown = session_.made(result.desc, HostSlotUse::readback);
      ranges.push_back({result.range, {shown.slot->host, 0, result.range.bytes}});
      result.slot = shown.slot;
    }
    if (!ranges.empty()) session_.submit(session_.recordings().copies(ranges));
  }

  // Observations so far.
  struct Observer {
    uint64_t most;
    std::map<const RoutineStep*, uint64_t> runs;
    FlowObservation found;
  };

  std::shared_ptr<const FlowProgram> program_;
  bool checks_indices_;
  std::optional<Observer> observer_;  // nullopt: not observing
  FlowSession session_;
  LoopDriver loops_on_device_;
  ChoiceDriver choices_on_device_;
  std::vector<FlowValue> inputs_, results_;
  std::deque<Frame> frames_;  // one per depth; frames beyond depth_ keep their memory for reuse
  size_t depth_ = 0;
  LoopReports loops_;
  // Lists for the current region, kept to save allocations.
  std::vector<FlowValue> read_, made_;
  std::vector<ShapeView> shapes_;
  std::vector<const std::byte*> elements_;
};

}  // namespace

std::shared_ptr<FlowLease> FlowLease::create(std::shared_ptr<const FlowProgram> program, const RecordingOptions& options) {
  return std::make_shared<RoutineLease>(std::move(program), options);
}

}  // namespace pumice

#include "graph/control_flow/control_flow_lease.h"

#include <algorithm>
#include <deque>
#include <map>

#include "core/error.h"
#include "graph/control_flow/branch_driver.h"
#include "graph/control_flow/control_flow_session.h"
#include "graph/control_flow/loop_driver.h"
#include "graph/control_flow/scalar_loop.h"
#include "graph/description/graph_path.h"

namespace pumice {
namespace {

// State of a WHILE that the host drives.
struct Loop {
  LoopReport* report = nullptr;
  ControlFlowSession::Clock::time_point entered;
  uint64_t trips = 0;
  bool in_body = false;
  std::vector<RoutineValue> values;  // operands of the graph that runs next
};

// State of a running routine.
struct Frame {
  const Routine* routine = nullptr;
  std::string_view role;  // the routine's role in its node: "then", "body"
  size_t step = 0;
  std::vector<RoutineValue> values;  // one per value of the graph
  Loop loop;                         // loop of the current step
};

class RoutineLease : public ControlFlowLease {
 public:
  RoutineLease(std::shared_ptr<const ControlFlowProgram> program, const RecordingOptions& options)
      : program_(std::move(program)),
        checks_indices_(program_->checks_indices()),
        session_(program_->context, program_->name, options),
        loop_driver_(*program_, session_),
        branch_driver_(*program_, session_) {}

  const TensorDesc& input_desc(size_t i) const override { return inputs_.at(i).desc; }
  const TensorDesc& output_desc(size_t j) const override { return results_.at(j).desc; }
  std::byte* input(size_t i) override { return inputs_.at(i).slot->bytes; }
  const std::byte* output(size_t j) const override {
    const RoutineValue& result = results_.at(j);
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
      RoutineValue& input = inputs_[i];
      input.host.reset();
      if (input.slot && input.desc.shape.size() == shapes[i].size() && std::ranges::equal(input.desc.shape, shapes[i])) continue;
      input = {};
      input = session_.make_value(TensorDesc(main.input_values[i].dtype, {shapes[i].begin(), shapes[i].end()}), HostSlotUse::upload);
    }
  }

  ControlFlowObservation observe(const RunLimits& limits, uint64_t max_runs) override {
    observer_.emplace(Observer{max_runs, {}, {}});
    start(limits);
    ControlFlowObservation observation = std::move(observer_->observation);
    for (size_t j = 0; j < results_.size(); ++j) observation.outputs.push_back(HostTensor::copy_of(output_desc(j).packed(), output(j)));
    for (const Routine& routine : program_->routines)
      for (const RoutineStep& step : routine.steps)
        if (step.region) observation.regions.push_back({routine.name, observer_->runs[&step], std::min(observer_->runs[&step], max_runs)});
    observer_.reset();
    return observation;
  }

  Submission start(const RunLimits& limits, std::span<std::byte* const> /*targets*/ = {}) override {
    session_.begin(limits);
    loops_.clear();
    depth_ = 0;
    try {
      copy_inputs();
      enter_routine(0, inputs_, program_->name, "");
      with_error_path([&] { return path(); },
                      [&] {
                        while (depth_ > 0) run_step();
                      });
      copy_results_to_host();
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
  const std::byte* read(RoutineValue& value) {
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
    for (RoutineValue& input : inputs_) {
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
              path_element(step.kind == RoutineStep::Kind::if_ ? "If" : "While", step.local_name, inner.role, inner.routine->name);
    }
    return text;
  }

  // Enters a routine; `user`: the node that runs it, `role`: its role in that node.
  void enter_routine(size_t number, std::span<const RoutineValue> inputs, const std::string& user, std::string_view role) {
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
  void check_operand(const Routine& routine, size_t i, const RoutineValue& actual, const std::string& user) const {
    const ProgramValue& declared = routine.input_values[i];
    if (!declared.shape) return;
    bool fits = declared.shape->size() == actual.desc.shape.size();
    for (size_t axis = 0; fits && axis < declared.shape->size(); ++axis)
      fits = (*declared.shape)[axis] == kUnknownSize || (*declared.shape)[axis] == actual.desc.shape[axis];
    if (fits) return;
    GraphValue expected;
    expected.dtype = declared.dtype, expected.shape = declared.shape;
    throw GraphError(user, "input '" + declared.name + "' of graph '" + routine.name + "': " + to_string(expected) + " expected, given " +
                               to_string(actual.desc));
  }

  Frame& top() { return frames_[depth_ - 1]; }

  void run_step() {
    Frame& frame = top();
    if (frame.step == frame.routine->steps.size()) return exit_routine(frame);
    const RoutineStep& step = frame.routine->steps[frame.step];
    session_.check_time(step.kind == RoutineStep::Kind::region ? frame.routine->name : step.node);
    switch (step.kind) {
      case RoutineStep::Kind::region:
        return run(frame, step);
      case RoutineStep::Kind::if_:
        return run_if(frame, step);
      case RoutineStep::Kind::while_:
        return run_while(frame, step);
    }
  }

  static RoutineValue& value(Frame& frame, ValueId id) { return frame.values[static_cast<size_t>(id)]; }

  void run(Frame& frame, const RoutineStep& step) {
    read_.clear(), outputs_.clear(), shapes_.clear(), elements_.clear();
    bool reads = false;
    const bool passes_elements = step.region->reads_values() || step.region->checks_values();
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      RoutineValue& input = value(frame, step.inputs[i]);
      reads = reads || (step.region->reads_values(i) && !input.host);
      if (step.region->reads_values(i)) read(input);
      if (passes_elements) elements_.push_back(input.host ? input.host->data : nullptr);
      read_.push_back(input);
    }
    if (reads) note_read_back();
    for (const RoutineValue& input : read_) shapes_.emplace_back(input.desc.shape);
    const auto bound = session_.with_loop_clock_paused([&] { return step.region->bind(shapes_, elements_); });
    ObservedRun* const observed = observer_ ? session_.with_loop_clock_paused([&] { return observe_run(frame, step); }) : nullptr;
    for (size_t j = 0; j < step.outputs.size(); ++j) {
      const bool is_read_by_host = frame.routine->read_by_host[static_cast<size_t>(step.outputs[j])];
      RoutineValue& output = outputs_.emplace_back(
          session_.make_value(*bound->compiled()->outputs()[j].desc, is_read_by_host ? HostSlotUse::readback : HostSlotUse::device));
      if (const auto& host = bound->output_host(j)) output.host = std::make_shared<const HostTensor>(*host);
    }
    for (size_t k = 0; k < bound->index_checks().size(); ++k)
      outputs_.push_back(session_.make_value(*bound->compiled()->outputs()[step.outputs.size() + k].desc, HostSlotUse::readback));
    session_.submit(session_.with_loop_clock_paused([&]() -> CommandList& { return session_.recordings().run(bound, read_, outputs_); }));
    if (observed) session_.with_loop_clock_paused([&] { compare_run(*observed, step); });
    if (!bound->index_checks().empty())
      throw_failed_checks(bound->index_checks(), [&](size_t k) { return read(outputs_[step.outputs.size() + k]); });
    for (size_t j = 0; j < step.outputs.size(); ++j) value(frame, step.outputs[j]) = std::move(outputs_[j]);
    read_.clear(), outputs_.clear();
    end_step(frame, step);
  }

  // Reruns a region on its inputs to observe what its kernels store; null if it has been observed often enough.
  ObservedRun* observe_run(Frame& frame, const RoutineStep& step) {
    const uint64_t number = observer_->runs[&step]++;
    if (number >= observer_->max_runs) return nullptr;
    ObservedRun run{frame.routine->name, number, {}, step.region->make_observed_region(shapes_, elements_, {}), {}};
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      RoutineValue& input = value(frame, step.inputs[i]);
      run.observed->write_input(i, read(input));
      run.inputs.emplace_back(step.region->inputs()[i].name, *input.host);
    }
    program_->context->wait(run.observed->start(session_.limits().interrupted).id(), {}, session_.limits().interrupted);
    observer_->observation.runs.push_back(std::move(run));
    return &observer_->observation.runs.back();
  }

  // Records the outputs of a region that differ bitwise from the observed run.
  void compare_run(ObservedRun& run, const RoutineStep& step) {
    for (size_t j = 0; j < step.outputs.size(); ++j) {
      if (outputs_[j].host) continue;  // the elements were known at binding
      const std::byte* const actual = read(outputs_[j]);
      const uint64_t bytes = outputs_[j].desc.element_bytes();
      if (!std::equal(actual, actual + bytes, run.observed->output(j))) run.differing.push_back(step.region->outputs()[j].name);
    }
  }

  // Whether the device may run a loop alone: while kernels are observed, only if a single kernel runs it.
  bool may_run_on_device(const RoutineStep& step, std::span<const RoutineValue> values) {
    if (checks_indices_) return false;
    if (!observer_) return true;
    if (!step.scalar || !ScalarLoop::create(*program_, step, values, session_.recordings().options())) return false;
    observer_->observation.single_loops.push_back(step.node);
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
  static std::vector<bool> results_read_by_host(const Frame& frame, const RoutineStep& step) {
    std::vector<bool> is_read_by_host;
    for (const ValueId output : step.outputs) is_read_by_host.push_back(frame.routine->read_by_host[static_cast<size_t>(output)]);
    return is_read_by_host;
  }

  void run_if(Frame& frame, const RoutineStep& step) {
    if (step.inputs[0] == kAbsent) throw GraphError(step.node, "the condition of an IF is expected, given none", "B2.13");
    std::vector<RoutineValue> operands;
    for (const ValueId input : step.inputs) operands.push_back(value(frame, input));
    if (!operands[0].host && step.first != step.second && !checks_indices_ && !observer_)
      if (auto results = branch_driver_.run(step, operands, results_read_by_host(frame, step))) return end_step(frame, step, *results);
    const bool takes_then = is_true(operands[0]);
    enter_routine(takes_then ? step.first : step.second, std::span(operands).subspan(1), step.node, takes_then ? "then" : "else");
  }

  void run_while(Frame& frame, const RoutineStep& step) {
    Loop& loop = frame.loop;
    loop = {&loops_[&step], session_.loop_clock(), 0, false, {}};
    loop.report->node = step.node, loop.report->kind = "host";
    ++loop.report->entries;
    for (const ValueId input : step.inputs) loop.values.push_back(value(frame, input));
    if (may_run_on_device(step, loop.values))
      if (auto results = loop_driver_.run(step, loop.values, results_read_by_host(frame, step), loops_)) {
        loop = {};
        return end_step(frame, step, *results);
      }
    enter_routine(step.first, loop.values, step.node, "condition");
  }

  // Leaves a routine that has run all its steps.
  void exit_routine(Frame& frame) {
    std::vector<RoutineValue> results;
    for (const ValueId output : frame.routine->outputs) results.push_back(value(frame, output));
    frame.values.clear();
    if (--depth_ == 0)
      results_ = std::move(results);
    else
      receive_results(top(), std::move(results));
  }

  // Receives the results of the graph that the current step ran.
  void receive_results(Frame& frame, std::vector<RoutineValue> results) {
    const RoutineStep& step = frame.routine->steps[frame.step];
    if (step.kind == RoutineStep::Kind::if_) return end_step(frame, step, results);
    Loop& loop = frame.loop;
    if (loop.in_body) {
      std::ranges::move(results, loop.values.begin());
      ++loop.trips, ++loop.report->trips;
      loop.in_body = false;
      return enter_routine(step.first, loop.values, step.node, "condition");
    }
    const uint64_t syncs_before = session_.report.host_syncs;
    const bool goes_on = is_true(results[0]);
    loop.report->host_syncs += session_.report.host_syncs - syncs_before;
    if (!goes_on) {
      results = std::move(loop.values);
      loop = {};
      return end_step(frame, step, results);
    }
    if (session_.is_loop_over(loop.entered)) session_.fail_loop(step.node, loop.trips);
    loop.in_body = true;
    enter_routine(step.second, loop.values, step.node, "body");
  }

  bool is_true(RoutineValue& condition) {
    if (!condition.host) ++session_.report.host_syncs;
    return read(condition)[0] != std::byte{0};
  }

  void end_step(Frame& frame, const RoutineStep& step, std::span<RoutineValue> results = {}) {
    for (size_t j = 0; j < results.size() && j < step.outputs.size(); ++j) value(frame, step.outputs[j]) = std::move(results[j]);
    for (const ValueId id : step.released) value(frame, id) = {};
    ++frame.step;
  }

  // Copies results to host-visible memory where necessary.
  void copy_results_to_host() {
    std::vector<std::pair<BufferRange, BufferRange>> ranges;
    for (RoutineValue& result : results_) {
      if (result.host || result.host_visible()) continue;
      const RoutineValue host_copy = session_.make_value(result.desc, HostSlotUse::readback);
      ranges.push_back({result.range, {host_copy.slot->host, 0, result.range.bytes}});
      result.slot = host_copy.slot;
    }
    if (!ranges.empty()) session_.submit(session_.recordings().copies(ranges));
  }

  // Observations so far.
  struct Observer {
    uint64_t max_runs;
    std::map<const RoutineStep*, uint64_t> runs;
    ControlFlowObservation observation;
  };

  std::shared_ptr<const ControlFlowProgram> program_;
  bool checks_indices_;
  std::optional<Observer> observer_;  // nullopt: not observing
  ControlFlowSession session_;
  LoopDriver loop_driver_;
  BranchDriver branch_driver_;
  std::vector<RoutineValue> inputs_, results_;
  std::deque<Frame> frames_;  // one per depth; frames beyond depth_ keep their memory for reuse
  size_t depth_ = 0;
  LoopReports loops_;
  // Lists for the current region, kept to save allocations.
  std::vector<RoutineValue> read_, outputs_;
  std::vector<ShapeView> shapes_;
  std::vector<const std::byte*> elements_;
};

}  // namespace

std::shared_ptr<ControlFlowLease> ControlFlowLease::create(std::shared_ptr<const ControlFlowProgram> program,
                                                           const RecordingOptions& options) {
  return std::make_shared<RoutineLease>(std::move(program), options);
}

}  // namespace pumice

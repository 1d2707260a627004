#include "graph/control_flow/control_flow_lease.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <map>

#include "core/error.h"
#include "graph/control_flow/branch_driver.h"
#include "graph/control_flow/control_flow_execution.h"
#include "graph/control_flow/loop_driver.h"
#include "graph/control_flow/scalar_loop.h"
#include "graph/description/graph_path.h"

namespace pumice {
namespace {

// State of a WHILE driven by the host.
struct HostLoopState {
  LoopReport* report = nullptr;
  ControlFlowExecution::Clock::time_point entered;
  uint64_t trips = 0;
  bool in_body = false;
  std::vector<RoutineValue> values;  // inputs of the condition or body that runs next
};

// State of a running routine, like a frame of a call stack.
struct CallFrame {
  const Routine* routine = nullptr;
  std::string_view role;  // role of the routine in its node: "then", "body"
  size_t step = 0;
  std::vector<RoutineValue> values;  // indexed by value of the graph
  HostLoopState loop;                // used if the current step is a WHILE
  bool compiled_else = false;        // compile-only contexts: whether the else branch of the current IF was entered
};

// Returns the value that a compile-only context assumes for data that it does not compute: sizes are 1, conditions are true.
HostTensor make_ones(const TensorDesc& desc) {
  uint64_t one = 1;  // the element's bits; the host is little-endian
  if (desc.dtype == DType::float64) one = std::bit_cast<uint64_t>(1.0);
  if (desc.dtype == DType::float32) one = std::bit_cast<uint32_t>(1.0f);
  const size_t bytes = static_cast<size_t>(std::max(bits(desc.dtype) / 8, 1));
  std::vector<std::byte> elements(desc.packed().element_bytes() + sizeof one);
  for (size_t at = 0; at + sizeof one <= elements.size(); at += bytes) std::memcpy(elements.data() + at, &one, sizeof one);
  return HostTensor::copy_of(desc.packed(), elements.data());
}

class ControlFlowLeaseImpl : public ControlFlowLease {
 public:
  ControlFlowLeaseImpl(std::shared_ptr<const ControlFlowProgram> program, const RecordingOptions& options)
      : program_(std::move(program)),
        checks_indices_(program_->checks_indices()),
        execution_(program_->context, program_->name, options),
        loop_driver_(*program_, execution_),
        branch_driver_(*program_, execution_) {}

  const TensorDesc& input_desc(size_t i) const override { return inputs_.at(i).desc; }
  const TensorDesc& output_desc(size_t j) const override { return results_.at(j).desc; }
  std::byte* input(size_t i) override { return inputs_.at(i).slot->bytes; }
  const std::byte* output(size_t j) const override {
    const RoutineValue& result = results_.at(j);
    return result.host ? result.host->data : result.slot->bytes;
  }
  void read_output(size_t j, std::byte* target, const InterruptCallback& interrupted = {}) const override {
    program_->context->require_execution("output " + std::to_string(j) + " of '" + program_->name + "'");
    ControlFlowLease::read_output(j, target, interrupted);
  }
  uint64_t last_submission() const override { return execution_.last_submission() ? execution_.last_submission()->id() : 0; }
  RunReport report() const override { return execution_.report; }
  std::optional<double> device_seconds() const override { return execution_.device_seconds(); }

  void fill_memory(uint32_t word, const InterruptCallback& interrupted = {}) override {
    results_.clear();  // returns the memory of the results to the pool
    execution_.pool().fill_free_slots(word, interrupted);
    execution_.recordings().fill_arena(word, interrupted);
  }

  void allocate_inputs(std::span<const ShapeView> shapes) override {
    const Routine& main = program_->routines[0];
    check_shapes(program_->name, main.input_values, shapes);
    results_.clear();
    inputs_.resize(shapes.size());
    for (size_t i = 0; i < shapes.size(); ++i) {
      RoutineValue& input = inputs_[i];
      input.host.reset();
      if (input.slot && input.desc.shape.size() == shapes[i].size() && std::ranges::equal(input.desc.shape, shapes[i])) continue;
      input = {};
      input =
          execution_.allocate_value(TensorDesc(main.input_values[i].dtype, {shapes[i].begin(), shapes[i].end()}), StagingSlotUse::upload);
    }
  }

  ControlFlowObservation observe(const RunLimits& limits, uint64_t max_runs) override {
    observer_.emplace(RegionObserver{max_runs, {}, {}});
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
    execution_.begin(limits);
    loops_.clear();
    depth_ = 0;
    try {
      copy_inputs_to_device();
      enter_routine(0, inputs_, program_->name, "");
      with_error_path([&] { return make_graph_path(); },
                      [&] {
                        while (depth_ > 0) run_step();
                      });
      copy_results_to_host();
      // start() must return a submission, so an execution without work submits an empty list.
      if (execution_.report.submissions == 0) execution_.submit(execution_.recordings().get_copy_recording({}));
      execution_.wait();
    } catch (...) {
      for (CallFrame& frame : frames_) frame = {};
      depth_ = 0;
      observer_.reset();
      throw;
    }
    for (const auto& [step, loop] : loops_) execution_.report.loops.push_back(loop);
    return *execution_.last_submission();
  }

 private:
  // Returns the elements of a value, waiting for the device if necessary.
  const std::byte* read_elements(RoutineValue& value) {
    if (value.host) return value.host->data;
    if (program_->context->compile_only()) {
      value.host = std::make_shared<const HostTensor>(make_ones(value.desc));
      return value.host->data;
    }
    execution_.wait();
    if (value.is_host_visible()) {
      value.host = std::make_shared<const HostTensor>(HostTensor::copy_of(value.desc, value.slot->bytes));
    } else {
      std::vector<std::byte> bytes(value.range.bytes);
      if (!bytes.empty()) download(value.range, bytes, execution_.limits().interrupted);
      value.host = std::make_shared<const HostTensor>(HostTensor::copy_of(value.desc, bytes.data()));
    }
    return value.host->data;
  }

  void copy_inputs_to_device() {
    std::vector<std::pair<BufferRange, BufferRange>> ranges;
    for (RoutineValue& input : inputs_) {
      if (input.slot->needs_copy()) ranges.push_back({{input.slot->host, 0, input.range.bytes}, input.range});
      input.host = std::make_shared<const HostTensor>(HostTensor{input.desc, input.slot, input.slot->bytes});
    }
    if (!ranges.empty()) execution_.submit(execution_.recordings().get_copy_recording(ranges));
  }

  // Returns the path from the outermost graph to the current one, for errors; empty in the outermost graph.
  std::string make_graph_path() const {
    if (depth_ < 2) return {};
    std::string text = format_path_start(frames_[0].routine->name);
    for (size_t depth = 0; depth + 1 < depth_; ++depth) {
      const RoutineStep& step = frames_[depth].routine->steps[frames_[depth].step];
      const CallFrame& inner = frames_[depth + 1];
      text += (depth ? " / " : "") + format_path_element(step.kind == RoutineStep::StepKind::if_ ? "If" : "While", step.local_name,
                                                         inner.role, inner.routine->name);
    }
    return text;
  }

  // Enters a routine. `user`: name of the node that runs it; `role`: its role in that node.
  void enter_routine(size_t number, std::span<const RoutineValue> inputs, const std::string& user, std::string_view role) {
    const Routine& routine = program_->routines[number];
    if (frames_.size() <= depth_) frames_.emplace_back();
    CallFrame& frame = frames_[depth_];
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

  // Throws GraphError if a value does not match the declared shape of a routine input.
  void check_operand(const Routine& routine, size_t i, const RoutineValue& actual, const std::string& user) const {
    const ProgramValue& declared = routine.input_values[i];
    if (!declared.shape) return;
    bool fits = declared.shape->size() == actual.desc.shape.size();
    for (size_t axis = 0; fits && axis < declared.shape->size(); ++axis)
      fits = (*declared.shape)[axis] == kUnknownSize || (*declared.shape)[axis] == actual.desc.shape[axis];
    if (fits) return;
    GraphValue expected;
    expected.dtype = declared.dtype, expected.shape = declared.shape;
    throw GraphError(user, "input '" + declared.name + "' of graph '" + routine.name + "': expected " + to_string(expected) + ", given " +
                               to_string(actual.desc));
  }

  CallFrame& top_frame() { return frames_[depth_ - 1]; }

  void run_step() {
    CallFrame& frame = top_frame();
    if (frame.step == frame.routine->steps.size()) return exit_routine(frame);
    const RoutineStep& step = frame.routine->steps[frame.step];
    execution_.check_timeout(step.kind == RoutineStep::StepKind::region ? frame.routine->name : step.node);
    switch (step.kind) {
      case RoutineStep::StepKind::region:
        return run_region(frame, step);
      case RoutineStep::StepKind::if_:
        return run_if(frame, step);
      case RoutineStep::StepKind::while_:
        return run_while(frame, step);
    }
  }

  static RoutineValue& get_value(CallFrame& frame, ValueId id) { return frame.values[static_cast<size_t>(id)]; }

  void run_region(CallFrame& frame, const RoutineStep& step) {
    read_.clear(), outputs_.clear(), shapes_.clear(), elements_.clear();
    bool reads = false;
    const bool passes_elements = step.region->reads_values() || step.region->checks_input_elements();
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      RoutineValue& input = get_value(frame, step.inputs[i]);
      reads = reads || (step.region->reads_values(i) && !input.host);
      if (step.region->reads_values(i)) read_elements(input);
      if (passes_elements) elements_.push_back(input.host ? input.host->data : nullptr);
      read_.push_back(input);
    }
    if (reads) count_host_readback();
    for (const RoutineValue& input : read_) shapes_.emplace_back(input.desc.shape);
    const auto bound = execution_.with_loop_clock_paused([&] { return step.region->bind(shapes_, elements_); });
    ObservedRun* const observed = observer_ ? execution_.with_loop_clock_paused([&] { return observe_run(frame, step); }) : nullptr;
    for (size_t j = 0; j < step.outputs.size(); ++j) {
      const bool is_read_by_host = frame.routine->read_by_host[static_cast<size_t>(step.outputs[j])];
      RoutineValue& output = outputs_.emplace_back(execution_.allocate_value(
          *bound->compiled()->outputs()[j].desc, is_read_by_host ? StagingSlotUse::readback : StagingSlotUse::device));
      if (const auto& host = bound->output_host(j)) output.host = std::make_shared<const HostTensor>(*host);
    }
    for (size_t k = 0; k < bound->index_checks().size(); ++k)
      outputs_.push_back(execution_.allocate_value(*bound->compiled()->outputs()[step.outputs.size() + k].desc, StagingSlotUse::readback));
    execution_.submit(execution_.with_loop_clock_paused(
        [&]() -> CommandList& { return execution_.recordings().get_region_recording(bound, read_, outputs_); }));
    if (observed) execution_.with_loop_clock_paused([&] { compare_observed_run(*observed, step); });
    if (!bound->index_checks().empty() && !program_->context->compile_only())
      throw_failed_checks(bound->index_checks(), [&](size_t k) { return read_elements(outputs_[step.outputs.size() + k]); });
    for (size_t j = 0; j < step.outputs.size(); ++j) get_value(frame, step.outputs[j]) = std::move(outputs_[j]);
    read_.clear(), outputs_.clear();
    end_step(frame, step);
  }

  // Reruns a region on the same inputs to observe the tensors that its kernels store. Returns null after `max_runs` observations.
  ObservedRun* observe_run(CallFrame& frame, const RoutineStep& step) {
    const uint64_t number = observer_->runs[&step]++;
    if (number >= observer_->max_runs) return nullptr;
    ObservedRun run{frame.routine->name, number, {}, step.region->make_intermediate_tensor_capture(shapes_, elements_, {}), {}};
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      RoutineValue& input = get_value(frame, step.inputs[i]);
      run.observed->write_input(i, read_elements(input));
      run.inputs.emplace_back(step.region->inputs()[i].name, *input.host);
    }
    program_->context->wait(run.observed->start(execution_.limits().interrupted).id(), {}, execution_.limits().interrupted);
    observer_->observation.runs.push_back(std::move(run));
    return &observer_->observation.runs.back();
  }

  // Records the outputs of a region that differ bitwise from the observed run.
  void compare_observed_run(ObservedRun& run, const RoutineStep& step) {
    for (size_t j = 0; j < step.outputs.size(); ++j) {
      if (outputs_[j].host) continue;  // elements known at binding are the same in both runs
      const std::byte* const actual = read_elements(outputs_[j]);
      const uint64_t bytes = outputs_[j].desc.element_bytes();
      if (!std::equal(actual, actual + bytes, run.observed->output(j))) run.differing.push_back(step.region->outputs()[j].name);
    }
  }

  // Whether the device may run a loop without the host. While kernels are observed, it may only if a single kernel runs the loop.
  bool may_run_on_device(const RoutineStep& step, std::span<const RoutineValue> values) {
    if (checks_indices_) return false;
    if (!observer_) return true;
    if (!step.scalar || !ScalarLoop::create(*program_, step, values, execution_.recordings().options())) return false;
    observer_->observation.single_loops.push_back(step.node);
    return true;
  }

  // Counts a host readback of elements that shapes depend on, for the execution and for the innermost loop driven by the host.
  void count_host_readback() {
    ++execution_.report.host_syncs, ++execution_.report.read_backs;
    for (size_t depth = depth_; depth-- > 0;)
      if (LoopReport* report = frames_[depth].loop.report) {
        ++report->host_syncs;
        return;
      }
  }

  // Returns, for each output of a step, whether the host reads it.
  static std::vector<bool> find_host_read_results(const CallFrame& frame, const RoutineStep& step) {
    std::vector<bool> is_read_by_host;
    for (const ValueId output : step.outputs) is_read_by_host.push_back(frame.routine->read_by_host[static_cast<size_t>(output)]);
    return is_read_by_host;
  }

  void run_if(CallFrame& frame, const RoutineStep& step) {
    if (step.inputs[0] == kAbsent) throw GraphError(step.node, "expected a condition for IF, given none", "B2.13");
    std::vector<RoutineValue> operands;
    for (const ValueId input : step.inputs) operands.push_back(get_value(frame, input));
    if (!operands[0].host && step.first != step.second && !checks_indices_ && !observer_)
      if (auto results = branch_driver_.run(step, operands, find_host_read_results(frame, step))) return end_step(frame, step, *results);
    if (program_->context->compile_only() && !operands[0].host && step.first != step.second && !frame.compiled_else) {
      frame.compiled_else = true;  // compile the else branch and discard its results; the next run_step() takes the then branch
      return enter_routine(step.second, std::span(operands).subspan(1), step.node, "else");
    }
    frame.compiled_else = false;
    const bool takes_then = read_condition(operands[0]);
    enter_routine(takes_then ? step.first : step.second, std::span(operands).subspan(1), step.node, takes_then ? "then" : "else");
  }

  void run_while(CallFrame& frame, const RoutineStep& step) {
    HostLoopState& loop = frame.loop;
    loop = {&loops_[&step], execution_.loop_clock(), 0, false, {}};
    loop.report->node = step.node, loop.report->kind = "host";
    ++loop.report->entries;
    for (const ValueId input : step.inputs) loop.values.push_back(get_value(frame, input));
    if (may_run_on_device(step, loop.values))
      if (auto results = loop_driver_.run(step, loop.values, find_host_read_results(frame, step), loops_)) {
        loop = {};
        return end_step(frame, step, *results);
      }
    enter_routine(step.first, loop.values, step.node, "condition");
  }

  // Returns from a routine whose steps have all run.
  void exit_routine(CallFrame& frame) {
    std::vector<RoutineValue> results;
    for (const ValueId output : frame.routine->outputs) results.push_back(get_value(frame, output));
    frame.values.clear();
    if (--depth_ == 0)
      results_ = std::move(results);
    else
      receive_results(top_frame(), std::move(results));
  }

  // Passes the results of a routine to the IF or WHILE that ran it.
  void receive_results(CallFrame& frame, std::vector<RoutineValue> results) {
    const RoutineStep& step = frame.routine->steps[frame.step];
    if (step.kind == RoutineStep::StepKind::if_) {
      if (frame.compiled_else) return;
      return end_step(frame, step, results);
    }
    HostLoopState& loop = frame.loop;
    if (loop.in_body) {
      std::ranges::move(results, loop.values.begin());
      ++loop.trips, ++loop.report->trips;
      loop.in_body = false;
      return enter_routine(step.first, loop.values, step.node, "condition");
    }
    const uint64_t syncs_before = execution_.report.host_syncs;
    const bool is_unknown = program_->context->compile_only() && !results[0].host;  // then the body is compiled once
    const bool continues = read_condition(results[0]) && !(is_unknown && loop.trips > 0);
    loop.report->host_syncs += execution_.report.host_syncs - syncs_before;
    if (!continues) {
      results = std::move(loop.values);
      loop = {};
      return end_step(frame, step, results);
    }
    if (execution_.is_loop_timed_out(loop.entered)) execution_.throw_loop_timeout(step.node, loop.trips);
    loop.in_body = true;
    enter_routine(step.second, loop.values, step.node, "body");
  }

  bool read_condition(RoutineValue& condition) {
    if (!condition.host) ++execution_.report.host_syncs;
    return read_elements(condition)[0] != std::byte{0};
  }

  void end_step(CallFrame& frame, const RoutineStep& step, std::span<RoutineValue> results = {}) {
    for (size_t j = 0; j < results.size() && j < step.outputs.size(); ++j) get_value(frame, step.outputs[j]) = std::move(results[j]);
    for (const ValueId id : step.released) get_value(frame, id) = {};
    ++frame.step;
  }

  // Copies results that are only in device memory to host-visible memory.
  void copy_results_to_host() {
    std::vector<std::pair<BufferRange, BufferRange>> ranges;
    for (RoutineValue& result : results_) {
      if (result.host || result.is_host_visible()) continue;
      const RoutineValue host_copy = execution_.allocate_value(result.desc, StagingSlotUse::readback);
      ranges.push_back({result.range, {host_copy.slot->host, 0, result.range.bytes}});
      result.slot = host_copy.slot;
    }
    if (!ranges.empty()) execution_.submit(execution_.recordings().get_copy_recording(ranges));
  }

  // State of an observation in progress.
  struct RegionObserver {
    uint64_t max_runs;
    std::map<const RoutineStep*, uint64_t> runs;
    ControlFlowObservation observation;
  };

  std::shared_ptr<const ControlFlowProgram> program_;
  bool checks_indices_;
  std::optional<RegionObserver> observer_;  // nullopt unless kernels are observed
  ControlFlowExecution execution_;
  LoopDriver loop_driver_;
  BranchDriver branch_driver_;
  std::vector<RoutineValue> inputs_, results_;
  std::deque<CallFrame> frames_;  // indexed by depth; frames beyond depth_ keep their memory for reuse
  size_t depth_ = 0;
  LoopReports loops_;
  // Temporary lists for the current region, kept to avoid allocations.
  std::vector<RoutineValue> read_, outputs_;
  std::vector<ShapeView> shapes_;
  std::vector<const std::byte*> elements_;
};

}  // namespace

std::shared_ptr<ControlFlowLease> ControlFlowLease::create(std::shared_ptr<const ControlFlowProgram> program,
                                                           const RecordingOptions& options) {
  return std::make_shared<ControlFlowLeaseImpl>(std::move(program), options);
}

}  // namespace pumice

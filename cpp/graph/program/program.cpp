#include "graph/program/program.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/error.h"
#include "graph/control_flow/control_flow_lease.h"
#include "graph/control_flow/graph_levels.h"
#include "graph/passes/force_fp32_nodes.h"
#include "graph/passes/passes.h"
#include "graph/region/execution_lease_pool.h"
#include "graph/region/intermediate_tensor_capture.h"
#include "graph/region/region.h"

namespace pumice {
namespace {

// Whether one command list can run the whole graph: it has no control flow and no host sync points.
bool runs_as_single_command_list(const Graph& graph, bool keep_all) {
  if (std::ranges::any_of(graph.nodes(), [](const GraphNode& node) { return node.control != nullptr; })) return false;
  return compute_levels(graph, find_needed_values(graph, keep_all), {}).levels.size() <= 1;
}

}  // namespace

// The program is either one region for the whole graph, or a list of routines.
struct Program::Impl {
  Impl(std::shared_ptr<Context> owner, const Graph& graph, const ProgramOptions& options)
      : context(std::move(owner)), name(graph.name()), control_flow_pool("'" + graph.name() + "'") {
    if (runs_as_single_command_list(graph, options.keep_all))
      compile_region(graph, options);
    else
      compile_routines(graph, options);
  }

  void compile_region(const Graph& graph, const ProgramOptions& options) {
    region = std::make_shared<Region>(context, graph, make_whole_subgraph(graph), options);
    inputs = region->inputs(), outputs = region->outputs();
    if (options.progress) options.progress("kernels", 0, 1);
    bind_if_static(*region, options.progress);
  }

  // Binds the region if all sizes are known, so that unsupported nodes are reported at compilation instead of at the first call.
  static void bind_if_static(Region& target, const CompileProgress& progress) {
    std::vector<ShapeView> shapes;
    for (const auto& input : target.inputs())
      if (input.shape && std::find(input.shape->begin(), input.shape->end(), kUnknownSize) == input.shape->end())
        shapes.emplace_back(*input.shape);
    if (shapes.size() == target.inputs().size() && !target.reads_values()) target.bind(shapes, {}, progress);
  }

  void compile_routines(const Graph& graph, const ProgramOptions& options) {
    control_flow = std::make_shared<const ControlFlowProgram>(ControlFlowProgram{context, name, make_routines(context, graph, options)});
    const Routine& main = control_flow->routines[0];
    inputs = main.input_values;
    for (size_t j = 0; j < main.outputs.size(); ++j) {
      const GraphValue& value = graph.value(main.outputs[j]);
      outputs.push_back({j < graph.outputs().size() ? graph.outputs()[j].first : value.name, value.dtype, value.shape, {}});
    }
    for (const RoutineStep& step : main.steps) {
      if (step.region) bind_if_static(*step.region, options.progress);
      if (!multi_list_reason.empty()) continue;
      multi_list_reason =
          step.kind == RoutineStep::StepKind::region ? step.sync_point : "node '" + step.node + "': " + get_control_op(step);
    }
  }

  void check_open() const {
    if (closed) throw StateError("program '" + name + "' is closed");
  }

  Region& get_single_region(const char* caller) const {
    check_open();
    if (!region)
      throw UnsupportedError(multi_list_reason + " in a program; " + caller + " supports only programs with a single list of dispatches");
    return *region;
  }

  static std::string get_control_op(const RoutineStep& step) { return step.kind == RoutineStep::StepKind::if_ ? "If" : "While"; }

  // Returns the report text of an IF or WHILE: the graphs it runs, and whether the device or the host decides.
  std::string describe_control_node(const RoutineStep& step) const {
    const std::string first = "'" + control_flow->routines[step.first].name + "'",
                      second = "'" + control_flow->routines[step.second].name + "'";
    if (step.kind == RoutineStep::StepKind::while_)
      return "runs " + second + " while " + first + " is true, on the device if no shape changes";
    if (step.first == step.second) return "runs " + first + " regardless of the condition";
    return "runs " + first + " or " + second + ": the device decides if they are short, otherwise the host reads the condition";
  }

  std::shared_ptr<Context> context;
  std::string name;
  std::vector<ProgramValue> inputs, outputs;
  std::shared_ptr<Region> region;
  std::shared_ptr<const ControlFlowProgram> control_flow;
  std::string multi_list_reason;  // why the graph cannot run as a single command list; "" if it can
  ExecutionLeasePool control_flow_pool;
  std::atomic<bool> closed{false};
};

Program::Program(std::shared_ptr<Context> context, const Graph& graph, const ProgramOptions& options)
    : impl_(std::make_unique<Impl>(std::move(context), graph, options)) {}

Program::~Program() = default;

const std::string& Program::name() const {
  return impl_->name;
}
const std::vector<ProgramValue>& Program::inputs() const {
  return impl_->inputs;
}
const std::vector<ProgramValue>& Program::outputs() const {
  return impl_->outputs;
}
const std::shared_ptr<Context>& Program::context() const {
  return impl_->context;
}
bool Program::has_control_flow() const {
  return impl_->control_flow != nullptr;
}
bool Program::checks_indices() const {
  return impl_->region ? impl_->region->graph().index_checks > 0 : impl_->control_flow->checks_indices();
}
bool Program::reads_values(size_t i) const {
  return impl_->region && impl_->region->reads_values(i);
}
BufferRange Program::persistent() const {
  return impl_->region ? impl_->region->persistent() : BufferRange{};
}
bool Program::closed() const {
  return impl_->closed;
}

std::shared_ptr<ExecutionLease> Program::acquire_lease(std::span<const ShapeView> shapes, std::span<const std::byte* const> values,
                                                       bool wait, std::optional<double> timeout_seconds,
                                                       const std::function<void()>& interrupted) {
  impl_->check_open();
  if (impl_->region) return impl_->region->bind(shapes, values)->acquire_lease(wait, timeout_seconds, interrupted);
  const auto make = [this] { return ControlFlowLease::create(impl_->control_flow, {}); };
  auto leased = impl_->control_flow_pool.acquire_lease(*impl_->context, make, wait, timeout_seconds, interrupted);
  static_cast<ControlFlowLease&>(*leased).allocate_inputs(shapes);
  return leased;
}

std::shared_ptr<ExecutionLease> Program::make_lease_with_timestamps(std::span<const ShapeView> shapes,
                                                                    std::span<const std::byte* const> values) {
  impl_->check_open();
  RecordingOptions options;
  options.total_time = true;
  if (impl_->region) return impl_->region->bind(shapes, values)->make_lease(options);
  auto flow_lease = ControlFlowLease::create(impl_->control_flow, options);
  flow_lease->allocate_inputs(shapes);
  return flow_lease;
}

std::shared_ptr<CompiledOperator> Program::get_compiled_operator(std::span<const ShapeView> shapes,
                                                                 std::span<const std::byte* const> values) {
  if (checks_indices())
    throw UnsupportedError("program '" + name() + "' checks its indices on the host; compiled() supports only programs that do not");
  Region& region = impl_->get_single_region("compiled()");
  if (region.is_deferred())
    throw UnsupportedError("compiled() of '" + name() + "', whose operations depend on unknown ranks: its weights differ for " +
                           "each choice of shapes; declare the inputs' ranks");
  return region.bind(shapes, values)->compiled();
}

std::vector<ReportRow> Program::report() const {
  if (impl_->region) return impl_->region->report();
  std::vector<ReportRow> rows;
  for (const Routine& routine : impl_->control_flow->routines)
    for (const RoutineStep& step : routine.steps) {
      if (step.kind == RoutineStep::StepKind::region) {
        if (!step.sync_point.empty()) rows.push_back({step.node, "ReadBack", "", step.sync_point, {}, true, {}, ""});
        const auto region_rows = step.region->report();
        rows.insert(rows.end(), region_rows.begin(), region_rows.end());
        continue;
      }
      rows.push_back({step.node, Impl::get_control_op(step), "", impl_->describe_control_node(step), {}, false, {}, ""});
    }
  return rows;
}

ArenaReport Program::report_arena(std::span<const ShapeView> shapes, std::span<const std::byte* const> values) {
  const auto arena_of = [&](Region& target) { return target.bind(shapes, values)->report_arena(target.graph()); };
  Region& region = impl_->get_single_region("arena()");
  return arena_of(region.is_deferred() ? *region.get_expanded_region(shapes, values) : region);
}

std::vector<StepReport> Program::report_steps(std::span<const ShapeView> shapes, std::span<const std::byte* const> values) {
  const auto steps_of = [&](Region& target) { return target.bind(shapes, values)->report_steps(target.graph()); };
  Region& region = impl_->get_single_region("plan()");
  return steps_of(region.is_deferred() ? *region.get_expanded_region(shapes, values) : region);
}

std::vector<DispatchTime> Program::profile(std::span<const ShapeView> shapes, std::span<const std::byte* const> inputs,
                                           const std::function<void()>& interrupted) {
  RecordingOptions options;
  options.timestamps = true;
  const auto lease = impl_->get_single_region("profile()").bind(shapes, inputs)->make_lease(options);
  for (size_t i = 0; i < inputs.size(); ++i) lease->write_input(i, inputs[i]);
  context()->wait(lease->start({}).id(), {}, interrupted);  // warm-up, because some drivers compile kernels in the first run
  context()->wait(lease->start({}).id(), {}, interrupted);
  return lease->list().recording()->dispatch_times();
}

std::shared_ptr<IntermediateTensorCapture> Program::observe(std::span<const ShapeView> shapes, std::span<const std::byte* const> inputs,
                                                            const TensorCaptureOptions& capture_options,
                                                            const std::function<void()>& interrupted) {
  const auto run = impl_->get_single_region("observe()").make_intermediate_tensor_capture(shapes, inputs, capture_options);
  for (size_t i = 0; i < inputs.size(); ++i) run->write_input(i, inputs[i]);
  context()->wait(run->start(interrupted).id(), {}, interrupted);
  return run;
}

ControlFlowObservation Program::observe_runs(std::span<const ShapeView> shapes, std::span<const std::byte* const> inputs,
                                             const RunLimits& limits, uint64_t max_runs) {
  impl_->check_open();
  if (!impl_->control_flow)
    throw UnsupportedError("observe_runs() of '" + name() + "', which has a single list of dispatches: use observe()");
  const auto lease = ControlFlowLease::create(impl_->control_flow, {});
  lease->allocate_inputs(shapes);
  for (size_t i = 0; i < inputs.size(); ++i) lease->write_input(i, inputs[i]);
  return lease->observe(limits, max_runs);
}

void Program::close() {
  if (impl_->closed.exchange(true)) return;
  if (impl_->region) impl_->region->close();
  if (!impl_->control_flow) return;
  impl_->control_flow_pool.clear();
  for (const Routine& routine : impl_->control_flow->routines)
    for (const RoutineStep& step : routine.steps)
      if (step.region) step.region->close();
}

std::shared_ptr<Program> compile(Graph& graph, std::shared_ptr<Context> context, const ProgramOptions& options) {
  graph.finish();
  for (const ValueId input : graph.inputs())
    if (const GraphValue& value = graph.value(input); value.owned)
      throw GraphError(value.name, "an owned input is bound to an initializer, which programs do not have: use compile_operator()", "O6");
  ProgramOptions complete = options;
  complete.float32_nodes = expand_fp32_node_names(graph, options.float32_nodes);
  return std::make_shared<Program>(std::move(context), graph, complete);
}

}  // namespace pumice

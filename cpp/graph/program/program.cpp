#include "graph/program/program.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/error.h"
#include "graph/control_flow/control_flow_lease.h"
#include "graph/control_flow/graph_levels.h"
#include "graph/passes/float32_nodes.h"
#include "graph/passes/passes.h"
#include "graph/region/lease_pool.h"
#include "graph/region/observed_region.h"
#include "graph/region/region.h"

namespace pumice {
namespace {

// Whether one list of dispatches runs the whole graph: no control flow and no host sync points.
bool is_one_run(const Graph& graph, bool keep_all) {
  if (std::ranges::any_of(graph.nodes(), [](const GraphNode& node) { return node.control != nullptr; })) return false;
  return levels_of(graph, needed_values(graph, keep_all), {}).levels.size() <= 1;
}

}  // namespace

// Either one region for the whole graph, or routines.
struct Program::State {
  State(std::shared_ptr<Context> owner, const Graph& graph, const ProgramOptions& options)
      : context(std::move(owner)), name(graph.name()), flow_pool("'" + graph.name() + "'") {
    if (is_one_run(graph, options.keep_all))
      compile_region(graph, options);
    else
      compile_routines(graph, options);
  }

  void compile_region(const Graph& graph, const ProgramOptions& options) {
    region = std::make_shared<Region>(context, graph, whole(graph), options);
    inputs = region->inputs(), outputs = region->outputs();
    if (options.progress) options.progress("kernels", 0, 1);
    bind_known(*region, options.progress);
  }

  // If all sizes are known, reports unsupported nodes here instead of at the first call.
  static void bind_known(Region& one, const CompileProgress& progress) {
    std::vector<ShapeView> shapes;
    for (const auto& input : one.inputs())
      if (input.shape && std::find(input.shape->begin(), input.shape->end(), kUnknownSize) == input.shape->end())
        shapes.emplace_back(*input.shape);
    if (shapes.size() == one.inputs().size() && !one.reads_values()) one.bind(shapes, {}, progress);
  }

  void compile_routines(const Graph& graph, const ProgramOptions& options) {
    flow = std::make_shared<const FlowProgram>(FlowProgram{context, name, make_routines(context, graph, options)});
    const Routine& main = flow->routines[0];
    inputs = main.input_values;
    for (size_t j = 0; j < main.outputs.size(); ++j) {
      const GraphValue& value = graph.value(main.outputs[j]);
      outputs.push_back({j < graph.outputs().size() ? graph.outputs()[j].first : value.name, value.dtype, value.shape, {}});
    }
    for (const RoutineStep& step : main.steps) {
      if (step.region) bind_known(*step.region, options.progress);
      if (!first_stop.empty()) continue;
      first_stop = step.kind == RoutineStep::Kind::region ? step.cut : "node '" + step.node + "': " + op_of(step);
    }
  }

  void check_open() const {
    if (closed) throw StateError("program '" + name + "' is closed");
  }

  Region& only_region(const char* what) const {
    check_open();
    if (!region) throw UnsupportedError(first_stop + " in a program; " + what + " is of programs that are one list of dispatches");
    return *region;
  }

  static std::string op_of(const RoutineStep& step) { return step.kind == RoutineStep::Kind::if_ ? "If" : "While"; }

  // Describes, for reports, what an IF or WHILE runs, and when the device decides instead of the host.
  std::string note(const RoutineStep& step) const {
    const std::string first = "'" + flow->routines[step.first].name + "'", second = "'" + flow->routines[step.second].name + "'";
    if (step.kind == RoutineStep::Kind::while_)
      return "runs " + second + " as long as " + first + " says, on the device where no shape changes";
    if (step.first == step.second) return "runs " + first + " whatever the condition is";
    return "runs " + first + " or " + second + ": the device decides where they are short, else the host reads the condition";
  }

  std::shared_ptr<Context> context;
  std::string name;
  std::vector<ProgramValue> inputs, outputs;
  std::shared_ptr<Region> region;
  std::shared_ptr<const FlowProgram> flow;
  std::string first_stop;  // reason why the graph cannot run as a single list of dispatches
  LeasePool flow_pool;
  std::atomic<bool> closed{false};
};

Program::Program(std::shared_ptr<Context> context, const Graph& graph, const ProgramOptions& options)
    : state_(std::make_unique<State>(std::move(context), graph, options)) {}

Program::~Program() = default;

const std::string& Program::name() const {
  return state_->name;
}
const std::vector<ProgramValue>& Program::inputs() const {
  return state_->inputs;
}
const std::vector<ProgramValue>& Program::outputs() const {
  return state_->outputs;
}
const std::shared_ptr<Context>& Program::context() const {
  return state_->context;
}
bool Program::has_control_flow() const {
  return state_->flow != nullptr;
}
bool Program::checks_indices() const {
  return state_->region ? state_->region->graph().index_checks > 0 : state_->flow->checks_indices();
}
bool Program::reads_values(size_t i) const {
  return state_->region && state_->region->reads_values(i);
}
BufferRange Program::persistent() const {
  return state_->region ? state_->region->persistent() : BufferRange{};
}
bool Program::closed() const {
  return state_->closed;
}

std::shared_ptr<Lease> Program::lease(std::span<const ShapeView> shapes, std::span<const std::byte* const> values, bool wait,
                                      std::optional<double> timeout_seconds, const std::function<void()>& interrupted) {
  state_->check_open();
  if (state_->region) return state_->region->bind(shapes, values)->lease(wait, timeout_seconds, interrupted);
  const auto make = [this] { return FlowLease::create(state_->flow, {}); };
  auto leased = state_->flow_pool.lease(*state_->context, make, wait, timeout_seconds, interrupted);
  static_cast<FlowLease&>(*leased).make_inputs(shapes);
  return leased;
}

std::shared_ptr<Lease> Program::measured_lease(std::span<const ShapeView> shapes, std::span<const std::byte* const> values) {
  state_->check_open();
  RecordingOptions options;
  options.total_time = true;
  if (state_->region) return state_->region->bind(shapes, values)->recorded(options);
  auto made = FlowLease::create(state_->flow, options);
  made->make_inputs(shapes);
  return made;
}

std::shared_ptr<CompiledOperator> Program::compiled(std::span<const ShapeView> shapes, std::span<const std::byte* const> values) {
  if (checks_indices())
    throw UnsupportedError("program '" + name() + "' checks its indices as the host drives it; compiled() is of programs that do not");
  Region& region = state_->only_region("compiled()");
  if (region.is_late())
    throw UnsupportedError("compiled() of '" + name() +
                           "', whose operations depend on ranks that are not known: its weights are those of " +
                           "each choice of shapes; declare the inputs' ranks");
  return region.bind(shapes, values)->compiled();
}

std::vector<ReportRow> Program::report() const {
  if (state_->region) return state_->region->report();
  std::vector<ReportRow> rows;
  for (const Routine& routine : state_->flow->routines)
    for (const RoutineStep& step : routine.steps) {
      if (step.kind == RoutineStep::Kind::region) {
        if (!step.cut.empty()) rows.push_back({step.node, "ReadBack", "", step.cut, {}, true, {}, ""});
        const auto own = step.region->report();
        rows.insert(rows.end(), own.begin(), own.end());
        continue;
      }
      rows.push_back({step.node, State::op_of(step), "", state_->note(step), {}, false, {}, ""});
    }
  return rows;
}

ArenaReport Program::arena(std::span<const ShapeView> shapes, std::span<const std::byte* const> values) {
  const auto arena_of = [&](Region& one) { return one.bind(shapes, values)->arena(one.graph()); };
  Region& region = state_->only_region("arena()");
  return arena_of(region.is_late() ? *region.at(shapes, values) : region);
}

std::vector<StepReport> Program::plan(std::span<const ShapeView> shapes, std::span<const std::byte* const> values) {
  const auto steps_of = [&](Region& one) { return one.bind(shapes, values)->steps(one.graph()); };
  Region& region = state_->only_region("plan()");
  return steps_of(region.is_late() ? *region.at(shapes, values) : region);
}

std::vector<DispatchTime> Program::profile(std::span<const ShapeView> shapes, std::span<const std::byte* const> inputs,
                                           const std::function<void()>& interrupted) {
  RecordingOptions options;
  options.timestamps = true;
  const auto lease = state_->only_region("profile()").bind(shapes, inputs)->recorded(options);
  for (size_t i = 0; i < inputs.size(); ++i) lease->write_input(i, inputs[i]);
  context()->wait(lease->start({}).id(), {}, interrupted);  // warm-up: some drivers compile in the first run
  context()->wait(lease->start({}).id(), {}, interrupted);
  return lease->list().recording()->dispatch_times();
}

std::shared_ptr<ObservedRegion> Program::observe(std::span<const ShapeView> shapes, std::span<const std::byte* const> inputs,
                                                 const Observed& what, const std::function<void()>& interrupted) {
  const auto run = state_->only_region("observe()").observed(shapes, inputs, what);
  for (size_t i = 0; i < inputs.size(); ++i) run->write_input(i, inputs[i]);
  context()->wait(run->start(interrupted).id(), {}, interrupted);
  return run;
}

FlowObservation Program::observe_runs(std::span<const ShapeView> shapes, std::span<const std::byte* const> inputs, const RunLimits& limits,
                                      uint64_t most) {
  state_->check_open();
  if (!state_->flow) throw UnsupportedError("observe_runs() of '" + name() + "', which is one list of dispatches: observe()");
  const auto lease = FlowLease::create(state_->flow, {});
  lease->make_inputs(shapes);
  for (size_t i = 0; i < inputs.size(); ++i) lease->write_input(i, inputs[i]);
  return lease->observe(limits, most);
}

void Program::close() {
  if (state_->closed.exchange(true)) return;
  if (state_->region) state_->region->close();
  if (!state_->flow) return;
  state_->flow_pool.clear();
  for (const Routine& routine : state_->flow->routines)
    for (const RoutineStep& step : routine.steps)
      if (step.region) step.region->close();
}

std::shared_ptr<Program> compile(Graph& graph, std::shared_ptr<Context> context, const ProgramOptions& options) {
  graph.finish();
  for (const ValueId input : graph.inputs())
    if (const GraphValue& value = graph.value(input); value.owned)
      throw GraphError(value.name, "an owned input is bound to an initializer, which programs do not have: compile_operator()", "O6");
  ProgramOptions complete = options;
  complete.float32_nodes = float32_nodes_of(graph, options.float32_nodes);
  return std::make_shared<Program>(std::move(context), graph, complete);
}

}  // namespace pumice

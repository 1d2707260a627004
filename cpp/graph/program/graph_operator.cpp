#include "graph/program/graph_operator.h"

#include <algorithm>

#include "core/error.h"
#include "graph/binding/arena.h"
#include "graph/binding/pipeline_builder.h"
#include "graph/binding/plan.h"
#include "graph/binding/plan_without_spills.h"
#include "graph/binding/weights.h"
#include "graph/control_flow/graph_levels.h"
#include "graph/passes/deferred_nodes.h"
#include "graph/passes/passes.h"
#include "graph/region/bound_program.h"

namespace pumice {
namespace {

bool has_static_shapes(const Graph& graph, const GraphNode& node) {
  const auto is_known = [&](ValueId value) { return value == kAbsent || graph.value(value).is_known(); };
  return std::ranges::all_of(node.inputs, is_known) && std::ranges::all_of(node.outputs, is_known);
}

// Throws if the graph has IF or WHILE nodes: a command list only runs dispatches, so control flow needs a Program.
void reject_control_flow(const Graph& graph) {
  std::vector<std::string> rejected;
  for (const GraphNode& node : graph.nodes()) {
    if (!node.control) continue;
    if (node.control->kind == ControlFlow::NodeKind::while_ && !has_static_shapes(graph, node))
      throw GraphError(node.name, "expected a WHILE on values of known sizes, given unknown ones; compile() it into a Program", "B2.6");
    rejected.push_back("node '" + node.name + "': " + std::string(node.op()) + " in a compiled operator; compile() it into a Program");
  }
  if (!rejected.empty()) throw UnsupportedError(rejected);
}

// Throws if shapes depend on elements that the host would have to read during execution, because a command list cannot wait.
void reject_host_reads(const Graph& graph) {
  std::vector<std::string> rejected;
  for (const GraphLevel& level : compute_levels(graph, find_needed_values(graph, false), {}).levels)
    if (const std::string text = describe_read_backs(graph, level); !text.empty())
      rejected.push_back(text + ", in a compiled operator; compile() it into a Program");
  if (!rejected.empty()) throw UnsupportedError(rejected);
}

BindInputs collect_input_shapes(const Graph& graph) {
  BindInputs key;
  for (const ValueId id : graph.inputs()) {
    const GraphValue& input = graph.values()[static_cast<size_t>(id)];
    if (!input.is_known()) throw GraphError(input.name, "an input of a compiled operator needs a known shape; compile() accepts any");
    key.shapes.push_back(*input.shape);
  }
  return key;
}

// Returns the name of the first node that reads the value, for messages.
std::string find_reader_name(const ProgramGraph& graph, ValueId value) {
  for (const ProgramNode& node : graph.nodes)
    if (std::ranges::find(node.inputs, value) != node.inputs.end()) return node.name;
  return graph.name;
}

void reject_shape_inputs(const ProgramGraph& graph) {
  std::vector<std::string> rejected;
  for (size_t i = 0; i < graph.inputs.size(); ++i)
    if (graph.shape_value_inputs[i])
      rejected.push_back("node '" + find_reader_name(graph, graph.inputs[i]) + "': shapes depend on the elements of input '" +
                         graph.value(graph.inputs[i]).name + "', which the host would have to read; compile() it into a Program");
  if (!rejected.empty()) throw UnsupportedError(rejected);
}

// Moves constants from the inputs of the plan to a block of its own, from which initialisation reads them.
void move_constants_to_plan(const Weights& weights, size_t inputs, ExecutionPlan& plan) {
  std::vector<uint64_t> offsets;
  for (const WeightSource& source : weights.sources) {
    const uint64_t offset = round_up(plan.constants.size(), kArenaAlignment);
    offsets.push_back(offset);
    plan.constants.resize(offset + round_up(source.bytes(), kTensorSizeAlignment));
    source.write_to(plan.constants.data() + offset);
  }
  auto initialization = std::make_shared<InitializationPlan>(*weights.initialization);
  for (PlannedStep& step : initialization->steps)
    for (PlannedOperand& operand : step.operands) {
      if (operand.memory != MemoryKind::input || operand.index < inputs) continue;
      operand.memory = MemoryKind::host;
      operand.byte_offset += offsets[operand.index - inputs];
      operand.index = 0;
    }
  plan.initialization = std::move(initialization);
  plan.inputs.resize(inputs);
}

void create_step_pipelines(const std::vector<PlannedStep>& steps) {
  std::vector<const KernelVariant*> kernels;
  for (const PlannedStep& step : steps) kernels.push_back(step.kernel.get());
  std::ranges::sort(kernels);
  kernels.erase(std::unique(kernels.begin(), kernels.end()), kernels.end());
  if (!kernels.empty()) create_pipelines(kernels);
}

}  // namespace

std::shared_ptr<CompiledOperator> compile_operator(Graph& whole_graph, std::shared_ptr<Context> context, const ExecutionOptions& options) {
  whole_graph.finish();
  reject_control_flow(whole_graph);
  reject_host_reads(whole_graph);
  const BindInputs key = collect_input_shapes(whole_graph);
  ProgramOptions program;
  program.precision = options.precision.value_or("fp32");
  program.deterministic = options.deterministic;
  const auto& nodes = whole_graph.nodes();
  if (const auto deferred = std::ranges::find_if(nodes, is_deferred); deferred != nodes.end()) reject_deferred_node(*deferred);
  const ProgramGraph graph =
      run_passes(whole_graph, make_whole_subgraph(whole_graph), program, context->limit("maxPerStageDescriptorStorageBuffers"));
  reject_shape_inputs(graph);
  const Weights weights = place_weights(context, graph);
  const auto plan_steps = [&] { return bind_plan(context, graph, weights, key); };
  ExecutionPlan plan =
      plan_without_spills(plan_steps, [](const ExecutionPlan& new_plan) { create_step_pipelines(new_plan.steps); }, *graph.spilled).plan;
  plan.has_volatile_descriptors = options.has_volatile_descriptors;
  move_constants_to_plan(weights, key.shapes.size(), plan);
  create_step_pipelines(plan.initialization->steps);
  return std::make_shared<CompiledOperator>(std::move(context), std::move(plan));
}

}  // namespace pumice

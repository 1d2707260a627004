#include "graph/control_flow/routine.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "core/error.h"
#include "core/number_format.h"
#include "graph/control_flow/graph_levels.h"
#include "graph/control_flow/scalar_loop_source.h"
#include "graph/description/graph_path.h"
#include "graph/passes/fp32_constants.h"
#include "graph/passes/passes.h"

namespace pumice {
namespace {

// Returns the value of an int32 constant with one element; nullopt for other values.
std::optional<int64_t> get_int32_constant(const GraphValue& value) {
  if (!value.constant || value.dtype != DType::int32 || value.constant->desc.elements() != 1) return {};
  return value.constant->as_int64()[0];
}

std::optional<size_t> find_input_index(const Graph& graph, ValueId value) {
  const auto found = std::ranges::find(graph.inputs(), value);
  return found == graph.inputs().end() ? std::nullopt : std::optional(static_cast<size_t>(found - graph.inputs().begin()));
}

const GraphNode* find_binary_producer(const Graph& graph, ValueId value, std::string_view op) {
  const int32_t producer = graph.value(value).producer;
  if (producer < 0) return nullptr;
  const GraphNode& node = graph.nodes()[static_cast<size_t>(producer)];
  return node.op() == op && node.inputs.size() == 2 ? &node : nullptr;
}

std::optional<LoopCounter> find_loop_counter(const ControlFlow& flow) {
  const Graph &condition = *flow.first, &body = *flow.second;
  const size_t num_state = flow.carried + flow.state;
  const GraphNode* less = find_binary_producer(condition, condition.outputs()[0].second, "Less");
  if (!less || condition.value(less->inputs[0]).dtype != DType::int32) return {};
  const auto counter = find_input_index(condition, less->inputs[0]), limit = find_input_index(condition, less->inputs[1]);
  const auto fixed = get_int32_constant(condition.value(less->inputs[1]));
  if (!counter || *counter >= num_state || (!fixed && (!limit || *limit < num_state))) return {};
  const GraphNode* add = find_binary_producer(body, body.outputs()[*counter].second, "Add");
  if (!add) return {};
  const ValueId counter_input = body.inputs()[*counter];
  const size_t other = add->inputs[0] == counter_input ? 1 : 0;
  const auto step = get_int32_constant(body.value(add->inputs[other]));
  if (add->inputs[1 - other] != counter_input || !step || *step <= 0) return {};
  return LoopCounter{*counter, fixed ? std::nullopt : limit, fixed.value_or(0), *step};
}

class RoutineBuilder {
 public:
  RoutineBuilder(const std::shared_ptr<Context>& context, const ProgramOptions& options) : context_(context), options_(options) {
    if (options.keep_all) options_.fuse = FusionSet::none();
    options_.keep_all = false;
  }

  std::vector<Routine> build(const Graph& graph, bool keep_all) {
    get_routine_index(graph, {});
    for (size_t i = 0; i < graphs_.size(); ++i) {  // build_routine() may append graphs
      path_ = paths_[i];
      with_error_path([&] { return path_; }, [&] { build_routine(*graphs_[i], i == 0, keep_all && i == 0); });
      routines_.push_back(std::move(routine_));
    }
    if (!rejected_.empty()) throw UnsupportedError(rejected_);
    for (const size_t condition : conditions_) {
      Routine& routine = routines_[condition];
      routine.read_by_host[to_index(routine.outputs[0])] = true;
    }
    return std::move(routines_);
  }

 private:
  // Returns the index of the routine for a graph. `graph_path`: its path for errors; a graph run by several nodes gets the path of the
  // first.
  size_t get_routine_index(const Graph& graph, const std::string& graph_path) {
    const auto [found, added] = numbers_.try_emplace(&graph, graphs_.size());
    if (added) graphs_.push_back(&graph), paths_.push_back(graph_path);
    return found->second;
  }

  // Returns the path, for errors, to a graph that a node of the current graph runs.
  std::string make_graph_path(const Graph& graph, const GraphNode& node, std::string_view role, const Graph& inner) const {
    return (path_.empty() ? format_path_start(graph.name()) : path_ + " / ") +
           format_path_element(node.op(), node.name, role, inner.name());
  }

  void build_routine(const Graph& graph, bool outermost, bool keep_all) {
    regions_after_syncs_ = 0;
    routine_ = {graph.name(), graph.inputs(), {}, {}, {}, {}, std::vector<bool>(graph.values().size(), false)};
    for (const ValueId input : graph.inputs()) {
      const GraphValue& value = graph.value(input);
      routine_.input_values.push_back({value.name, value.dtype, value.assumed ? std::nullopt : value.shape, value.dimension_names});
    }
    for (const auto& [name, value] : graph.outputs()) routine_.outputs.push_back(value);
    const std::vector<bool> needed = find_needed_values(graph, keep_all);
    if (keep_all) add_all_outputs(graph);
    levels_ = compute_levels(graph, needed, routine_.outputs);
    for (const GraphLevel& level : levels_.levels) {
      if (!level.plain.empty()) add_region(graph, level, outermost);
      for (const size_t node : level.control) add_control_node(graph, graph.nodes()[node], outermost);
    }
    add_constants(graph);
    find_last_uses(graph);
  }

  void add_all_outputs(const Graph& graph) {
    std::vector<bool> is_listed(graph.values().size(), false);
    for (const ValueId output : routine_.outputs) is_listed[to_index(output)] = true;
    for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node)
      for (const ValueId output : node->outputs)
        if (output != kAbsent && !is_listed[to_index(output)]) routine_.outputs.push_back(output);
  }

  std::string qualify_name(const Graph& graph, const std::string& name, bool outermost) const {
    return outermost || graph.name().empty() ? name : graph.name() + "/" + name;
  }

  static void mark_boundaries(const Graph& graph, Subgraph& subgraph, bool outermost) {
    std::vector<bool> is_read(graph.values().size(), false);  // whether nodes outside the subgraph read it, or it is an output
    std::vector<bool> is_inside(graph.nodes().size(), false);
    for (const size_t i : subgraph.nodes) is_inside[i] = true;
    for (size_t i = 0; i < is_inside.size(); ++i)
      for (const ValueId input : graph.nodes()[i].inputs)
        if (!is_inside[i] && input != kAbsent) is_read[to_index(input)] = true;
    for (const auto& [name, output] : graph.outputs())
      if (!outermost) is_read[to_index(output)] = true;
    for (const ValueId input : subgraph.inputs) subgraph.boundary_inputs.push_back(!outermost || graph.value(input).producer >= 0);
    for (const ValueId output : subgraph.outputs) subgraph.boundary_outputs.push_back(is_read[to_index(output)]);
  }

  void add_region(const Graph& graph, const GraphLevel& level, bool outermost) {
    const std::vector<size_t>& nodes = level.plain;
    Subgraph subgraph{graph.name(), nodes, {}, {}, {}, qualify_name(graph, {}, outermost)};
    std::vector<bool> is_produced(graph.values().size(), false), read = is_produced;
    for (const size_t i : nodes) {
      const GraphNode& node = graph.nodes()[i];
      for (const ValueId input : node.inputs) {
        if (input == kAbsent || graph.value(input).constant || is_produced[to_index(input)] || read[to_index(input)]) continue;
        read[to_index(input)] = true;
        subgraph.inputs.push_back(input);
      }
      for (const ValueId output : node.outputs) {
        if (output == kAbsent) continue;
        is_produced[to_index(output)] = true;
        if (levels_.crosses_levels[to_index(output)])
          subgraph.outputs.push_back(output), subgraph.host_outputs.push_back(levels_.on_host[to_index(output)]);
      }
    }
    mark_boundaries(graph, subgraph, outermost);
    RoutineStep& step = routine_.steps.emplace_back();
    step.sync_point = describe_read_backs(graph, level);
    if (!step.sync_point.empty()) step.node = qualify_name(graph, "region " + std::to_string(++regions_after_syncs_), outermost);
    step.inputs = subgraph.inputs, step.outputs = subgraph.outputs;
    step.region = std::make_shared<Region>(context_, graph, subgraph, options_);
    for (size_t i = 0; i < step.inputs.size(); ++i)
      if (step.region->reads_values(i)) routine_.read_by_host[to_index(step.inputs[i])] = true;
  }

  // Returns the value of a constant IF condition; the other branch is then not compiled.
  static std::optional<bool> get_constant_condition(const Graph& graph, const GraphNode& node) {
    if (node.inputs[0] == kAbsent || !graph.value(node.inputs[0]).constant) return {};
    return graph.value(node.inputs[0]).constant->data[0] != std::byte{0};
  }

  void add_control_node(const Graph& graph, const GraphNode& node, bool outermost) {
    const ControlFlow& flow = *node.control;
    RoutineStep& step = routine_.steps.emplace_back();
    step.kind = flow.kind == ControlFlow::NodeKind::if_ ? RoutineStep::StepKind::if_ : RoutineStep::StepKind::while_;
    step.node = qualify_name(graph, node.name, outermost);
    const auto known_branch = flow.kind == ControlFlow::NodeKind::if_ ? get_constant_condition(graph, node) : std::nullopt;
    const Graph &first = known_branch == false ? *flow.second : *flow.first, &second = known_branch == true ? *flow.first : *flow.second;
    const bool is_if = flow.kind == ControlFlow::NodeKind::if_;
    step.first = get_routine_index(first, make_graph_path(graph, node,
                                                          !is_if                  ? "condition"
                                                          : known_branch == false ? "else"
                                                                                  : "then",
                                                          first));
    step.second = get_routine_index(second, make_graph_path(graph, node, !is_if ? "body" : known_branch == true ? "then" : "else", second));
    step.local_name = node.name;
    step.carried = flow.carried, step.state = flow.state;
    reject_fp32_constants(graph, node, step);
    step.inputs = node.inputs, step.outputs = node.outputs;
    if (flow.kind == ControlFlow::NodeKind::while_) {
      step.counter = find_loop_counter(flow);
      if (options_.precision == "fp32") step.scalar = make_scalar_loop_macros(flow);
    }
    if (flow.kind == ControlFlow::NodeKind::while_)
      conditions_.push_back(step.first);
    else if (node.inputs[0] != kAbsent)
      routine_.read_by_host[to_index(node.inputs[0])] = true;
  }

  // Rejects constants beyond the float16 range that are passed to a loop or branch, where they would become float16.
  void reject_fp32_constants(const Graph& graph, const GraphNode& node, const RoutineStep& step) {
    if (options_.precision != "fp16") return;
    for (const ValueId input : node.inputs) {
      if (input == kAbsent || !graph.value(input).constant) continue;
      if (const auto number = find_unrepresentable_fp16(*graph.value(input).constant))
        rejected_.push_back((path_.empty() ? "" : path_ + ": ") + "node '" + step.node + "': " + std::string(node.op()) + " of '" +
                            graph.value(input).name + "', which holds " + format_general(*number) + ", not representable in float16");
    }
  }

  void add_constants(const Graph& graph) {
    std::vector<bool> added(graph.values().size(), false);
    const auto add = [&](ValueId id) {
      if (id == kAbsent || !graph.value(id).constant || added[to_index(id)]) return;
      added[to_index(id)] = true;
      const HostTensor& host = *graph.value(id).constant;
      const auto buffer = Buffer::create(context_, host.desc.bytes());
      const BufferRange range{buffer, 0, buffer->bytes()};
      std::vector<std::byte> bytes(buffer->bytes());  // buffer sizes are multiples of 4 bytes
      std::copy_n(host.data, host.desc.element_bytes(), bytes.begin());
      if (!bytes.empty()) upload(range, bytes);
      routine_.constants.push_back({id, host, range});
    };
    for (const RoutineStep& step : routine_.steps)
      if (step.kind != RoutineStep::StepKind::region) std::ranges::for_each(step.inputs, add);
    std::ranges::for_each(routine_.outputs, add);
  }

  void find_last_uses(const Graph& graph) {
    std::vector<bool> read(graph.values().size(), false);
    const auto record_last_use = [&](ValueId id, std::vector<ValueId>* released) {
      if (id == kAbsent || read[to_index(id)]) return;
      read[to_index(id)] = true;
      if (released && !graph.value(id).constant) released->push_back(id);
    };
    for (const ValueId output : routine_.outputs) record_last_use(output, nullptr);
    for (auto step = routine_.steps.rbegin(); step != routine_.steps.rend(); ++step) {
      for (const ValueId id : step->inputs) record_last_use(id, &step->released);
      for (const ValueId id : step->outputs) record_last_use(id, &step->released);  // also releases results that no step reads
    }
  }

  const std::shared_ptr<Context>& context_;
  ProgramOptions options_;
  std::unordered_map<const Graph*, size_t> numbers_;
  std::vector<const Graph*> graphs_;  // graph of each routine
  std::vector<std::string> paths_;    // indexed by routine; empty for the outermost graph
  std::string path_;                  // path to the current graph
  std::vector<size_t> conditions_;    // indices of the condition graphs
  std::vector<Routine> routines_;
  std::vector<std::string> rejected_;
  Routine routine_;                 // routine under construction
  size_t regions_after_syncs_ = 0;  // number of regions of the current routine that follow host sync points
  GraphLevels levels_;              // levels of the current graph
};

}  // namespace

std::optional<uint64_t> LoopCounter::count_trips(int64_t start, int64_t end) const {
  if (start >= end) return 0;
  const int64_t count = (end - start + step - 1) / step;
  if (start + count * step > std::numeric_limits<int32_t>::max()) return {};
  return static_cast<uint64_t>(count);
}

std::vector<Routine> make_routines(const std::shared_ptr<Context>& context, const Graph& graph, const ProgramOptions& options) {
  return RoutineBuilder(context, options).build(graph, options.keep_all);
}

}  // namespace pumice

#include "graph/description/graph.h"

#include <algorithm>
#include <bit>

#include "core/error.h"
#include "graph/description/shape_inference.h"
#include "graph/description/trial_tensor_desc.h"
#include "operators/geometry/index_bounds.h"
#include "operators/reduction/non_zero.h"
#include "operators/table/host_tensor_access.h"

namespace pumice {
namespace {

// Returns the number of nonzero elements assumed in a trial if only the device can count them. An unknown shape counts as 256 elements.
int64_t guess_nonzero_count(const TensorDesc* desc, size_t trial) {
  constexpr int64_t kQuarters[kTrials] = {2, 3, 1, 2, 3, 1, 1, 0};
  return ((desc ? desc->elements() : 256) * kQuarters[trial] + 3) / 4;
}

// Returns the index of the input whose nonzero elements determine the output size; see OperatorRow::counted_operator.
size_t get_counted_input(const OperatorRow& row) {
  return static_cast<size_t>(std::countr_zero(row.host_inputs));
}

// Returns a placeholder tensor for elements known only at run time; its first element is 1.
HostTensor make_placeholder_ones(DType dtype, Shape shape) {
  HostTensorWriter writer(TensorDesc(dtype, std::move(shape)));
  writer.store(0, 1.0);
  return writer.take();
}

// Returns the output dtypes by running the shape rule on inputs of size 1 with elements of 1, since dtypes do not depend on sizes.
// `keep_rank`: inputs keep their known rank, which an operator may require. Returns an empty vector if no rank works.
std::vector<std::optional<TensorDesc>> run_dtype_rule(const GraphNode& node, const std::vector<GraphValue>& values, bool keep_rank) {
  for (const size_t rank : {4, 2, 1, 3, 0}) {
    const GraphValue* first = node.inputs.empty() || node.inputs[0] == kAbsent ? nullptr : &values[static_cast<size_t>(node.inputs[0])];
    const auto first_rank = static_cast<int>(keep_rank && first && first->shape ? first->shape->size() : rank);
    if (first_rank < node.row->schema.min_rank || first_rank > node.row->schema.max_rank) continue;
    std::vector<TensorDesc> descs(node.inputs.size());
    std::vector<const TensorDesc*> inputs(node.inputs.size());
    std::vector<HostTensor> elements(node.inputs.size());
    std::vector<const HostTensor*> hosts(node.inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (node.inputs[i] == kAbsent) continue;
      const bool reads = has_bit(node.row->host_inputs, i);
      const GraphValue& value = values[static_cast<size_t>(node.inputs[i])];
      const bool known = keep_rank && value.shape && !reads;
      const auto tried = known ? make_trial_desc(value.dtype, *value.shape, 0) : std::nullopt;
      descs[i] = tried ? *tried : TensorDesc(value.dtype, Shape(reads ? std::min<size_t>(rank, 1) : rank, 1));
      inputs[i] = &descs[i];
      if (!reads) continue;
      elements[i] = make_placeholder_ones(descs[i].dtype, descs[i].shape);
      hosts[i] = &elements[i];
    }
    try {
      ShapeContext context(node.name, node.attributes, std::move(inputs), std::move(hosts), node.outputs.size());
      infer_outputs(*node.row, context);
      return context.take_outputs();
    } catch (const GraphError&) {
      continue;  // the rank is wrong, or the rule needs actual elements
    }
  }
  return {};
}

// Returns the likely dtype of an output whose rule cannot run: that of an input with the same set of allowed dtypes.
DType guess_dtype(const GraphNode& node, size_t output, const std::vector<GraphValue>& values) {
  for (const bool keep_rank : {true, false}) {
    const auto rule_outputs = run_dtype_rule(node, values, keep_rank);
    if (output < rule_outputs.size() && rule_outputs[output]) return rule_outputs[output]->dtype;
  }
  const auto& roles = node.row->schema.inputs;
  const auto& output_roles = node.row->schema.outputs;
  const DTypeSet set = output_roles.empty() ? 0 : output_roles[std::min(output, output_roles.size() - 1)].dtypes;
  for (int i = 0; i < kDTypeCount; ++i)
    if (set == make_dtype_set(static_cast<DType>(i))) return static_cast<DType>(i);
  for (const bool alike : {true, false})
    for (size_t i = 0; i < node.inputs.size() && !roles.empty(); ++i)
      if (node.inputs[i] != kAbsent && (!alike || roles[std::min(i, roles.size() - 1)].dtypes == set))
        return values[static_cast<size_t>(node.inputs[i])].dtype;
  return DType::float32;
}

// Whether shapes depend on input elements that are known only at run time.
bool lacks_host_elements(const GraphNode& node, const ShapeInference& known) {
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (node.inputs[i] != kAbsent && has_bit(node.row->host_inputs, i) && !known.host_elements(node.inputs[i])) return true;
  return false;
}

// Returns plausible elements for an input known only at run time, as the operator row describes. `x`: the shape of input 0.
HostTensor guess_elements(const GraphNode& node, const TensorDesc& input, const Shape& x) {
  int64_t first = node.row->host.assumed_values == AssumedHostValues::shape ? -1 : 1, others = 1;
  if (node.row->host.assumed_values == AssumedHostValues::parts && !x.empty()) {
    const auto rank = static_cast<int64_t>(x.size()), axis = node.attributes.integer("axis");
    first = x[static_cast<size_t>(((axis % rank) + rank) % rank)], others = 0;
  }
  HostTensorWriter writer(input);
  for (int64_t k = 0; k < input.elements(); ++k) writer.store(k, k == 0 ? first : others);
  return writer.take();
}

// Infers the ranks of outputs whose sizes depend on elements known only at run time, by running the shape rule on plausible elements.
std::vector<std::optional<TensorDesc>> guess_output_descs(const GraphNode& node, const ShapeInference& known) {
  std::vector<const TensorDesc*> inputs(node.inputs.size());
  std::vector<const HostTensor*> hosts(node.inputs.size());
  std::vector<HostTensor> guesses(node.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (node.inputs[i] == kAbsent) continue;
    inputs[i] = known.desc(node.inputs[i]);
    hosts[i] = known.host_elements(node.inputs[i]);
    if (!inputs[i]) return {};
    if (hosts[i] || !has_bit(node.row->host_inputs, i)) continue;
    if (inputs[i]->elements() > kMaxRequiredHostElements) return {};  // has too many elements to be sizes or counts
    guesses[i] = guess_elements(node, *inputs[i], inputs[0]->shape);
    hosts[i] = &guesses[i];
  }
  try {
    ShapeContext context(node.name, node.attributes, std::move(inputs), std::move(hosts), node.outputs.size());
    infer_outputs(*node.row, context);
    return context.take_outputs();
  } catch (const GraphError&) {
    return {};  // other elements might be valid
  }
}

// Returns the shape of an elementwise result, inferred by broadcasting, if no trial sizes fit all inputs. Returns nullopt if the node is
// not elementwise or a rank is unknown.
std::optional<Shape> infer_elementwise_shape(const GraphNode& node, const std::vector<GraphValue>& values) {
  std::vector<const Shape*> shapes;
  for (const ValueId input : node.inputs) {
    if (input == kAbsent) continue;
    const auto& shape = values[static_cast<size_t>(input)].shape;
    if (!shape) return {};
    shapes.push_back(&*shape);
  }
  if (node.row->skeleton != KernelKind::map || node.row->expression.empty() || shapes.empty()) return {};
  return broadcast_unknown_shapes(shapes);
}

// Returns a description for the dtype and rank checks of the schema; an unknown rank becomes the minimum rank.
TensorDesc make_schema_desc(const GraphValue& value, int min_rank) {
  return {value.dtype, Shape(value.shape ? value.shape->size() : static_cast<size_t>(min_rank), 1)};
}

}  // namespace

Graph::Graph(std::string name) : name_(std::move(name)) {
  for (size_t t = 0; t < kTrials; ++t) trials_.push_back(std::make_unique<ShapeInference>());
  named_trial_sizes_ = std::make_unique<NamedTrialSizes>();
}

// Nested graphs may form chains of thousands, so they are released in a loop, not recursively.
Graph::~Graph() {
  std::vector<std::shared_ptr<const ControlFlow>> released;
  const auto take = [&](std::vector<GraphNode>& nodes) {
    for (GraphNode& node : nodes)
      if (node.control) released.push_back(std::move(node.control));
  };
  take(nodes_);
  while (!released.empty()) {
    const auto control = std::const_pointer_cast<ControlFlow>(std::move(released.back()));
    released.pop_back();
    if (control.use_count() > 1) continue;
    if (control->first == control->second) control->second.reset();
    for (auto* graph : {&control->first, &control->second})
      if (graph->use_count() == 1) take(const_cast<Graph&>(**graph).nodes_);
  }
}

void Graph::check_not_finished() const {
  if (finished_) throw StateError("graph '" + name_ + "' is finished; make a new one to change it", "B2.12");
}

// Returns the first unused name among prefix<number>, prefix<number + 1>, ...
template <typename Names>
static std::string make_unused_name(const std::string& prefix, size_t number, const Names& used_names) {
  std::string name = prefix + std::to_string(number);
  while (used_names.contains(name)) name = prefix + std::to_string(++number);
  return name;
}

void Graph::check_value(ValueId value, const std::string& user) const {
  if (value < 0 || static_cast<size_t>(value) >= values_.size())
    throw GraphError(user, "value " + std::to_string(value) + " does not belong to this graph");
}

// Renames a value with a generated name, so that another value can use that name.
void Graph::free_generated_name(const std::string& name) {
  const auto chosen = generated_names_.find(name);
  if (chosen == generated_names_.end()) return;
  const ValueId id = chosen->second;
  std::string other = make_unused_name(value(id).constant ? "constant_" : "value_", values_.size(), value_names_);
  generated_names_.erase(chosen);
  value_names_.erase(name);
  value_names_.insert(other);
  generated_names_.emplace(other, id);
  values_[static_cast<size_t>(id)].name = std::move(other);
}

ValueId Graph::add_value(GraphValue value) {
  const auto id = static_cast<ValueId>(values_.size());
  if (value.name.empty()) {
    value.name = make_unused_name(value.constant ? "constant_" : "value_", static_cast<size_t>(id), value_names_);
    generated_names_.emplace(value.name, id);
  } else {
    free_generated_name(value.name);
  }
  if (!value_names_.insert(value.name).second) throw GraphError(value.name, "another value has this name");
  values_.push_back(std::move(value));
  return id;
}

ValueId Graph::input(std::string name, DType dtype, std::optional<Shape> shape, std::vector<std::string> dimension_names,
                     InputTraits traits) {
  check_not_finished();
  GraphValue value{std::move(name), dtype, std::move(shape), std::move(dimension_names), {}, -1, traits.owned, traits.assumed};
  if (value.name.empty()) throw GraphError("input " + std::to_string(inputs_.size()), "has no name");
  if (const size_t sizes = value.shape ? value.shape->size() : 0; value.dimension_names.size() > sizes)
    throw GraphError(value.name,
                     "expected " + std::to_string(sizes) + " size names, given " + std::to_string(value.dimension_names.size()));
  value.quantization = validate_quantization(value.name, dtype, value.shape, std::move(traits.quantization));
  if (value.is_known()) TensorDesc(dtype, *value.shape);  // throws if the tensor would be too large
  std::vector<std::optional<TensorDesc>> tried;
  if (value.shape)
    for (const Shape& sizes : named_trial_sizes_->assign_trial_shapes(*value.shape, value.dimension_names))
      tried.push_back(make_trial_desc(dtype, sizes, 0));
  const bool known = value.is_known() && !traits.assumed;
  const ValueId id = add_value(std::move(value));
  for (size_t t = 0; t < tried.size(); ++t)
    if (tried[t]) trials_[t]->set(id, std::move(*tried[t]));
  exact_ = exact_ && known;
  inputs_.push_back(id);
  return id;
}

ValueId Graph::constant(HostTensor tensor, std::string name) {
  check_not_finished();
  GraphValue value{std::move(name), tensor.desc.dtype, tensor.desc.shape, {}, tensor, -1};
  value.quantization = validate_quantization(value.name.empty() ? "constant" : value.name, value.dtype, value.shape, tensor.desc);
  const ValueId id = add_value(std::move(value));
  const HostTensor& shared = constants_.emplace_back(std::move(tensor));
  for (auto& trial : trials_) trial->set_constant(id, shared);
  return id;
}

void Graph::infer_node_outputs(const GraphNode& node, std::vector<GraphValue>& outputs) {
  const size_t trials = exact_ ? 1 : kTrials;
  const DType first_dtype = node.inputs.empty() || node.inputs[0] == kAbsent ? DType::float32 : value(node.inputs[0]).dtype;
  bool ran[kTrials] = {};
  const bool is_open = !exact_ && has_size_dependent_rank(*this, node);
  for (size_t t = 0; t < trials; ++t) {
    for (const ValueId output : node.outputs) trials_[t]->forget(output);  // facts left over from a rejected node
    if (is_open) continue;
    trials_[t]->set_uses_trial_sizes(!exact_);
    try {
      ran[t] = trials_[t]->infer_node(node);
      if (ran[t]) trials_[t]->evaluate_node(node);
    } catch (const UnsupportedError&) {
      throw;  // dtype and attribute errors do not depend on sizes
    } catch (const Error&) {
      if (exact_ && !lacks_host_elements(node, *trials_[t])) throw;  // otherwise the trial sizes may be the cause
      ran[t] = false;
    }
    ran[t] = ran[t] || (!exact_ && trials_[t]->assume_output_shape(node, first_dtype, t));
  }
  std::vector<std::optional<TensorDesc>> guessed, other;
  if (!is_open && !ran[0] && lacks_host_elements(node, *trials_[0])) {
    guessed = guess_output_descs(node, *trials_[0]);
    other = exact_ ? guessed : guess_output_descs(node, *trials_[1]);
    exact_ = false;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const ValueId id = node.outputs[i];
    if (i < std::min(guessed.size(), other.size()) && guessed[i] && other[i] && guessed[i]->rank() == other[i]->rank()) {
      outputs[i].dtype = guessed[i]->dtype;
      outputs[i].shape = Shape(guessed[i]->shape.size(), kUnknownSize);
      for (size_t t = 0; t < kTrials; ++t) set_trial_desc(*trials_[t], id, outputs[i].dtype, *outputs[i].shape, t);
      continue;
    }
    std::array<const TensorDesc*, kTrials> trial_descs = {};
    for (size_t t = 0; t < kTrials; ++t)
      if (ran[t]) trial_descs[t] = trials_[t]->desc(id);
    const TensorDesc* a = trial_descs[0];
    if (exact_) trial_descs[1] = a;
    const auto known = std::ranges::find_if(trial_descs, [](const TensorDesc* desc) { return desc != nullptr; });
    outputs[i].shape = find_common_shape(trial_descs);
    if (!exact_ && !outputs[i].shape && (outputs[i].shape = infer_elementwise_shape(node, values_)))
      for (size_t t = 0; t < kTrials; ++t)
        if (!ran[t]) set_trial_desc(*trials_[t], id, guess_dtype(node, i, values_), *outputs[i].shape, t);
    outputs[i].dtype = known != trial_descs.end() ? (*known)->dtype : guess_dtype(node, i, values_);
    if (!exact_ || !a) continue;
    for (size_t t = 1; t < kTrials; ++t) {  // an input with unknown sizes may be added later
      trials_[t]->set(id, *a);
      if (const auto* host = trials_[0]->host_elements(id)) trials_[t]->set_host_elements(id, *host);
    }
  }
}

std::string Graph::choose_node_name(std::string_view op, std::string requested_name) const {
  std::string name =
      requested_name.empty() ? make_unused_name(std::string(op) + "_", nodes_.size(), node_names_) : std::move(requested_name);
  if (node_names_.contains(name)) throw GraphError(name, "another node has this name");
  return name;
}

void Graph::check_output_names(const std::string& node, size_t count, const std::vector<std::string>& names) {
  if (names.size() > count)
    throw GraphError(node, "expected at most " + std::to_string(count) + (count == 1 ? " output name" : " output names") + ", given " +
                               std::to_string(names.size()));
}

// Assigns ids to the outputs of a node and returns their values, with names.
std::vector<GraphValue> Graph::name_outputs(GraphNode& node, size_t count, const std::vector<std::string>& names) const {
  check_output_names(node.name, count, names);
  std::vector<GraphValue> output_values(count);
  for (size_t i = 0; i < count; ++i) {
    output_values[i].producer = static_cast<int32_t>(nodes_.size());
    output_values[i].name = i < names.size() && !names[i].empty() ? names[i]
                            : count == 1                          ? node.name + ":0"
                                                                  : node.name + ":" + std::to_string(i);
    if (is_name_taken(output_values[i].name))
      throw GraphError(node.name, "produces '" + output_values[i].name + "', but another value has this name");
    for (size_t j = 0; j < i; ++j)
      if (output_values[j].name == output_values[i].name) throw GraphError(node.name, "produces '" + output_values[i].name + "' twice");
    node.outputs.push_back(static_cast<ValueId>(values_.size() + i));
  }
  return output_values;
}

std::vector<ValueId> Graph::append(GraphNode node, std::vector<GraphValue> output_values) {
  for (auto& value : output_values) add_value(std::move(value));
  node_names_.insert(node.name);
  nodes_.push_back(std::move(node));
  return nodes_.back().outputs;
}

std::vector<ValueId> Graph::add(std::string_view op, std::vector<ValueId> inputs, const Attributes& attributes, size_t outputs,
                                std::string name, std::vector<std::string> output_names) {
  check_not_finished();
  GraphNode node;
  node.row = find_operator(op);
  if (!node.row) throw UnsupportedError("node '" + (name.empty() ? choose_node_name(op, {}) : name) + "': operator " + std::string(op));
  node.name = choose_node_name(op, std::move(name));
  std::vector<TensorDesc> descs(inputs.size());
  std::vector<const TensorDesc*> input_descs(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] == kAbsent) continue;
    check_value(inputs[i], node.name);
    descs[i] = make_schema_desc(value(inputs[i]), i == 0 ? node.row->schema.min_rank : 0);
    input_descs[i] = &descs[i];
  }
  node.attributes = validate_attributes(*node.row, node.name, attributes);
  check_inputs(*node.row, node.name, input_descs, outputs);
  node.inputs = std::move(inputs);
  node.origin = origin_;
  if (!node.row->counted_operator.empty() && !value(node.inputs[get_counted_input(*node.row)]).constant)
    return add_data_dependent_node(std::move(node), output_names);
  check_constant_indices(node);
  std::vector<GraphValue> output_values = name_outputs(node, outputs, output_names);
  infer_node_outputs(node, output_values);
  return append(std::move(node), std::move(output_values));
}

// Throws for constant indices that are out of range, as far as the indexed sizes are known.
void Graph::check_constant_indices(const GraphNode& node) const {
  if (!node.row->indices) return;
  std::vector<Shape> sizes;
  for (const ValueId input : node.inputs) {
    if (input != kAbsent && !value(input).shape) return;
    sizes.push_back(input == kAbsent ? Shape{} : *value(input).shape);
  }
  const IndexBounds bounds = node.row->indices(node.attributes, sizes);
  if (bounds.input >= node.inputs.size() || node.inputs[bounds.input] == kAbsent) return;
  if (const auto& constant = value(node.inputs[bounds.input]).constant) check_indices(node.name, bounds, *constant);
}

// Adds a node whose output size is a count of nonzero elements. The count becomes a separate value, which the host reads if the device
// computes the elements.
std::vector<ValueId> Graph::add_data_dependent_node(GraphNode node, std::vector<std::string> output_names) {
  const size_t nodes = nodes_.size(), values = values_.size();
  const bool exact = exact_;
  try {
    const ValueId counted = node.inputs[get_counted_input(*node.row)];
    const auto is_count = [&](const GraphNode& node_of_graph) {
      return node_of_graph.row && node_of_graph.row->name == kCountNonZero && node_of_graph.inputs[0] == counted;
    };
    const auto known = std::ranges::find_if(nodes_, is_count);
    const auto counts = known != nodes_.end() ? known->outputs : add(kCountNonZero, {counted}, {}, 2, node.name + "/count");
    if (!value(counted).is_known())
      values_[static_cast<size_t>(counts[1])].shape = Shape{kUnknownSize};  // the trials may agree on a size of 1 by chance
    // A trial whose elements are known has already counted them; its results fit no other count.
    for (size_t t = 0; t < kTrials; ++t) {
      if (trials_[t]->host_elements(counts[0])) continue;
      exact_ = false;
      HostTensorWriter writer(TensorDesc(DType::int32, {1}));
      writer.store(0, guess_nonzero_count(trials_[t]->desc(counted), t));
      trials_[t]->set_host_elements(counts[0], writer.take());
    }
    node.inputs.insert(node.inputs.end(), counts.begin(), counts.end());
    return add(node.row->counted_operator, std::move(node.inputs), node.attributes, 1, std::move(node.name), std::move(output_names));
  } catch (...) {
    truncate_to(nodes, values);
    exact_ = exact;
    throw;
  }
}

void Graph::set_shape_hint(ValueId id, const Shape& shape) {
  check_not_finished();
  check_value(id, "expect()");
  GraphValue& value = values_[static_cast<size_t>(id)];
  if (value.constant || value.is_known() || (value.shape && value.shape->size() != shape.size())) return;
  Shape sizes = value.shape.value_or(Shape(shape.size(), kUnknownSize));
  for (size_t axis = 0; axis < shape.size(); ++axis)
    if (sizes[axis] == kUnknownSize) sizes[axis] = shape[axis];
  value.shape = std::move(sizes);
  exact_ = false;
  for (size_t t = 0; t < kTrials; ++t) set_trial_desc(*trials_[t], id, value.dtype, *value.shape, t);
}

void Graph::output(std::string name, ValueId value) {
  check_not_finished();
  check_value(value, "output '" + name + "'");
  if (name.empty()) name = values_[static_cast<size_t>(value)].name;
  for (const auto& [other, id] : outputs_)
    if (other == name) throw GraphError(name, "another output has this name");
  outputs_.emplace_back(std::move(name), value);
}

void Graph::finish() {
  if (finished_) return;
  if (outputs_.empty()) throw GraphError(name_, "a graph needs at least one output", "G7");
  finished_ = true;
  trials_.clear();
  named_trial_sizes_.reset();
  constants_.clear();
}

ValueId add_quantized_constant(Graph& graph, HostTensor tensor, const Quantization& quantization) {
  if (!quantization.scale.empty()) tensor.desc.quantized(quantization);
  return graph.constant(std::move(tensor));
}

bool has_size_dependent_rank(const Graph& graph, const GraphNode& node) {
  if (!node.row || node.requirement) return false;
  const auto is_open = [&](size_t input) {
    const auto& shape = graph.value(node.inputs[input]).shape;
    return !shape || std::ranges::find(*shape, kUnknownSize) != shape->end();
  };
  const auto has = [&](size_t input) { return input < node.inputs.size() && node.inputs[input] != kAbsent; };
  const auto input = node.row->rank_from ? node.row->rank_from(node.attributes, has(1)) : std::nullopt;
  return input && has(*input) && is_open(*input);
}

}  // namespace pumice

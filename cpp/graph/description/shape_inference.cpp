#include "graph/description/shape_inference.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "graph/description/trial_axis_sizes.h"
#include "operators/host/host_evaluate.h"

namespace pumice {
namespace {

static_assert(kTrialCount == kTrials);
constexpr size_t kFirstLongTrial = 4;
constexpr uint64_t kMaxTrialElements = uint64_t{1}
                                       << 26;  // maximum elements of an input, so that the elements of derived tensors can be counted too
constexpr auto kMaxTensorElements = static_cast<uint64_t>(kMaxElements);

bool exceeds_element_count(const Shape& shape, uint64_t limit) {
  uint64_t elements = 1;
  for (const int64_t size : shape) {
    if (size == 0) return false;
    if (elements > limit / static_cast<uint64_t>(size)) return true;
    elements *= static_cast<uint64_t>(size);
  }
  return false;
}

Shape fill_unknown_sizes(const Shape& shape, int64_t batch, int64_t size) {
  Shape sizes = shape;
  for (size_t axis = 0; axis < sizes.size(); ++axis)
    if (sizes[axis] == kUnknownSize) sizes[axis] = axis == 0 ? batch : size;
  return sizes;
}

}  // namespace

Shape make_trial_shape(const Shape& shape, size_t trial) {
  int64_t size = get_trial_sizes().sizes[trial];
  const bool is_long = trial >= kFirstLongTrial && trial < kLargeTrials;
  const int64_t batch = is_long && shape.size() == 1 ? size : get_trial_sizes().batches[trial];
  Shape sizes = fill_unknown_sizes(shape, batch, size);
  while (size > 3 && exceeds_element_count(sizes, kMaxTrialElements)) {  // several large axes would exceed the maximum tensor size
    size = std::max<int64_t>(size / 4 | (size & 1), 2);
    sizes = fill_unknown_sizes(shape, batch, size);
  }
  return exceeds_element_count(sizes, kMaxTensorElements) ? fill_unknown_sizes(shape, static_cast<int64_t>(1 + trial % 2), size) : sizes;
}

std::array<Shape, kTrials> NamedTrialSizes::assign_trial_shapes(const Shape& shape, const std::vector<std::string>& names) {
  std::array<Shape, kTrials> trials;
  const auto name_of = [&](size_t axis) { return axis < names.size() && shape[axis] == kUnknownSize ? names[axis] : std::string(); };
  const auto fill = [&](Shape& sizes, size_t trial) {
    for (size_t axis = 0; axis < sizes.size(); ++axis)
      if (const auto known = sizes_.find(name_of(axis)); known != sizes_.end()) sizes[axis] = known->second[trial];
  };
  for (size_t t = 0; t < kTrials; ++t) {
    Shape sizes = shape;
    fill(sizes, t);
    trials[t] = make_trial_shape(sizes, t);
  }
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (name_of(axis).empty()) continue;
    std::array<int64_t, kTrials> axis_sizes;
    for (size_t t = 0; t < kTrials; ++t) axis_sizes[t] = trials[t][axis];
    sizes_.try_emplace(name_of(axis), axis_sizes);
  }
  for (size_t t = 0; t < kTrials; ++t) {
    fill(trials[t], t);  // a name may be used on several axes of this input
    if (exceeds_element_count(trials[t], kMaxTensorElements)) trials[t] = make_trial_shape(shape, t);
  }
  return trials;
}

std::optional<Shape> find_common_shape(const std::array<const TensorDesc*, kTrials>& trials) {
  const TensorDesc* first = nullptr;
  size_t succeeded = 0;
  for (size_t t = 0; t < kLargeTrials; ++t) {
    if (!trials[t]) continue;
    if (!first) first = trials[t];
    if (trials[t]->rank() != first->rank()) return {};
    ++succeeded;
  }
  if (succeeded < 2) return {};
  Shape shape = first->shape;
  for (const TensorDesc* other : trials)
    for (size_t axis = 0; axis < shape.size() && other && other->rank() == first->rank(); ++axis)
      if (first->shape[axis] != other->shape[axis]) shape[axis] = kUnknownSize;
  return shape;
}

std::optional<Shape> broadcast_unknown_shapes(const std::vector<const Shape*>& shapes) {
  Shape result;
  for (const Shape* shape : shapes) result.resize(std::max(result.size(), shape->size()), 1);
  for (size_t from_end = 1; from_end <= result.size(); ++from_end) {
    int64_t& size = result[result.size() - from_end];
    for (const Shape* shape : shapes) {
      const int64_t declared = from_end > shape->size() ? 1 : (*shape)[shape->size() - from_end];
      if (declared == 1 || declared == size) continue;
      if (declared != kUnknownSize && size != 1 && size != kUnknownSize) return {};
      if (declared != kUnknownSize || size == 1) size = declared;
    }
  }
  return result;
}

void ShapeInference::set(ValueId value, TensorDesc desc) {
  descs_.set(value, std::move(desc));
}

void ShapeInference::set_host_elements(ValueId value, HostTensor host) {
  hosts_.set(value, std::move(host));
}

void ShapeInference::set_constant(ValueId value, const HostTensor& host) {
  const auto at = static_cast<size_t>(value);
  if (at >= constants_.size()) constants_.resize(std::max(at + 1, constants_.size() * 2));
  constants_[at] = &host;
}

void ShapeInference::reserve(size_t values) {
  descs_.reserve(values), hosts_.reserve(values), constants_.resize(values);
}

void ShapeInference::forget(ValueId value) {
  descs_.forget(value);
  hosts_.forget(value);
  if (constant(value)) constants_[static_cast<size_t>(value)] = nullptr;
}

void ShapeInference::reset_strides() {
  for (const auto& desc : descs_.all())
    if (desc && !desc->is_packed()) desc->strides = packed_strides(desc->shape);
}

ShapeInference::InferredValue ShapeInference::take_inferred_value(ValueId value) {
  return {descs_.take(value), hosts_.take(value)};
}

bool ShapeInference::is_unchanged(ValueId value, const InferredValue& known) const {
  const TensorDesc* desc = descs_.find(value);
  const HostTensor* host = hosts_.find(value);
  if ((desc != nullptr) != known.desc.has_value() || (host != nullptr) != known.host.has_value()) return false;
  if (desc && *desc != *known.desc) return false;
  return !host || have_same_elements(*host, *known.host);
}

TensorDesc* ShapeInference::mutable_desc(ValueId value) {
  return const_cast<TensorDesc*>(desc(value));
}

const TensorDesc* ShapeInference::desc(ValueId value) const {
  if (const TensorDesc* known = descs_.find(value)) return known;
  const HostTensor* known = constant(value);
  return known ? &known->desc : nullptr;
}

const HostTensor* ShapeInference::host_elements(ValueId value) const {
  if (const HostTensor* known = constant(value)) return known;
  return hosts_.find(value);
}

const HostTensor* ShapeInference::constant(ValueId value) const {
  const auto at = static_cast<size_t>(value);
  return value != kAbsent && at < constants_.size() ? constants_[at] : nullptr;
}

namespace {

// Runs a shape rule; its errors name the node of the caller.
template <typename Rule>
auto with_error_origin(const GraphNode& node, Rule&& rule) {
  try {
    return rule();
  } catch (const GraphError& error) {
    if (!node.origin) throw;
    throw GraphError(node.origin->node, std::string(node.origin->op) + ": " + error.what(), error.rule);
  }
}

}  // namespace

void ShapeInference::check_requirement(const GraphNode& node) const {
  if (!node.requirement) return;
  std::vector<const TensorDesc*> inputs;
  std::vector<const HostTensor*> hosts;
  for (const ValueId input : node.inputs) inputs.push_back(desc(input)), hosts.push_back(host_elements(input));
  node.requirement->check(inputs, hosts);
}

bool ShapeInference::infer_node(const GraphNode& node) {
  if (node.requirement) {
    const TensorDesc* first_input = desc(node.inputs[0]);
    if (first_input) set(node.outputs[0], TensorDesc(first_input->dtype, first_input->shape));
    return first_input != nullptr;
  }
  std::vector<const TensorDesc*> inputs(node.inputs.size());
  std::vector<const HostTensor*> hosts(node.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    inputs[i] = desc(node.inputs[i]);
    hosts[i] = host_elements(node.inputs[i]);
    if (!inputs[i] && node.inputs[i] != kAbsent) return false;
  }
  ShapeContext context(node.name, node.attributes, std::move(inputs), std::move(hosts), node.outputs.size());
  with_error_origin(node, [&] { infer_outputs(*node.row, context); });
  auto outputs = context.take_outputs();
  for (size_t i = 0; i < node.outputs.size(); ++i)
    if (node.outputs[i] != kAbsent && outputs[i]) set(node.outputs[i], std::move(*outputs[i]));
  return true;
}

void ShapeInference::broadcast_residual(const GraphNode& node, ValueId residual, const std::string& residual_name) {
  TensorDesc& result = *mutable_desc(node.outputs[0]);
  const Shape& other = desc(residual)->shape;
  try {
    result = TensorDesc(result.dtype, broadcast_shape(result.shape, other));
  } catch (const GraphError&) {
    throw GraphError(node.name, "its result " + to_string(result.shape) + " and '" + residual_name + "' " + to_string(other) +
                                    ", which is combined with it, do not broadcast together");
  }
}

bool ShapeInference::assume_output_shape(const GraphNode& node, DType dtype, size_t trial) {
  if (node.row->host.assumed_values != AssumedHostValues::shape || node.inputs.size() < 2) return false;
  const HostTensor* sizes = host_elements(node.inputs[1]);
  if (!sizes || sizes->desc.rank() != 1 || sizes->desc.elements() > kMaxRank) return false;
  Shape shape = sizes->as_int64();
  const bool copies = node.attributes.integer("allowzero") == 0;
  for (int64_t& size : shape)
    if (size < 0 || (size == 0 && copies)) size = kUnknownSize;  // -1: inferred; 0: copied from the input
  Shape trial_sizes_of_shape = make_trial_shape(shape, trial);
  if (exceeds_element_count(trial_sizes_of_shape, kMaxTensorElements)) return false;
  set(node.outputs[0], TensorDesc(dtype, std::move(trial_sizes_of_shape)));
  return true;
}

bool ShapeInference::fit_assumed_shape(const GraphNode& node, std::optional<size_t> rank) {
  if (node.row->host.assumed_values != AssumedHostValues::shape || node.inputs.size() < 2) return false;
  const TensorDesc* x = desc(node.inputs[0]);
  const HostTensor* sizes = host_elements(node.inputs[1]);
  if (!x || !sizes || sizes->desc.elements() > kMaxRank) return false;
  Shape shape = sizes->as_int64();
  shape.resize(rank.value_or(shape.size()), 1);
  int64_t remaining = x->elements();
  for (size_t i = shape.size(); i-- > 1;) {
    if (shape[i] <= 0 || remaining % shape[i] != 0) shape[i] = 1;
    remaining /= shape[i];
  }
  if (!shape.empty()) shape[0] = remaining;
  set(node.outputs[0], TensorDesc(x->dtype, std::move(shape)));
  return true;
}

// Whether the inputs of evaluate_node() are known. Most nodes fail this check, before anything is allocated for them.
bool ShapeInference::can_evaluate_on_host(const GraphNode& node, int64_t max_elements) const {
  for (const ValueId input : node.inputs)
    if (input != kAbsent && !host_elements(input) && !(node.row->host.reads_only_shapes && desc(input))) return false;
  for (const ValueId output : node.outputs) {
    const TensorDesc* known = desc(output);
    if (output != kAbsent && (!known || known->elements() > max_elements)) return false;
  }
  return true;
}

bool ShapeInference::evaluate_node(const GraphNode& node, int64_t max_elements) {
  if (node.requirement) {
    const HostTensor* first_input = host_elements(node.inputs[0]);
    if (first_input) set_host_elements(node.outputs[0], *first_input);
    return first_input != nullptr;
  }
  if (!node.row->evaluate || !can_evaluate_on_host(node, max_elements)) return false;
  std::vector<HostTensor> shape_only(node.row->host.reads_only_shapes ? node.inputs.size() : 0);
  std::vector<const HostTensor*> inputs(node.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    inputs[i] = host_elements(node.inputs[i]);
    if (inputs[i] || node.inputs[i] == kAbsent) continue;
    shape_only[i].desc = *desc(node.inputs[i]);
    inputs[i] = &shape_only[i];
  }
  std::vector<TensorDesc> descs;
  if (uses_trial_sizes_)  // infer_node() has checked the rule; for known sizes, passes may have changed the float dtypes since then
    for (const ValueId output : node.outputs)
      if (const TensorDesc* known = desc(output)) descs.emplace_back(known->dtype, known->shape);
  if (descs.size() != node.outputs.size()) descs.clear();
  auto results = with_error_origin(
      node, [&] { return evaluate_on_host(*node.row, node.name, node.attributes, inputs, uses_trial_sizes_, std::move(descs)); });
  if (!results) return false;
  for (size_t i = 0; i < node.outputs.size() && i < results->size(); ++i) {
    if (node.outputs[i] == kAbsent) continue;
    set(node.outputs[i], (*results)[i].desc);
    set_host_elements(node.outputs[i], std::move((*results)[i]));
  }
  return true;
}

}  // namespace pumice

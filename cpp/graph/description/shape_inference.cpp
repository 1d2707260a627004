#include "graph/description/shape_inference.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "graph/description/trial_sizes.h"
#include "operators/host/host_evaluate.h"

namespace pumice {
namespace {

static_assert(kTrialCount == kTrials);
constexpr size_t kFirstOfLong = 4;
constexpr uint64_t kMostTried = uint64_t{1} << 26;  // maximum number of elements of an input; keeps derived tensors countable too
constexpr auto kMostElements = static_cast<uint64_t>(kMaxElements);

bool has_more(const Shape& shape, uint64_t most) {
  uint64_t elements = 1;
  for (const int64_t size : shape) {
    if (size == 0) return false;
    if (elements > most / static_cast<uint64_t>(size)) return true;
    elements *= static_cast<uint64_t>(size);
  }
  return false;
}

Shape filled(const Shape& shape, int64_t batch, int64_t size) {
  Shape sizes = shape;
  for (size_t axis = 0; axis < sizes.size(); ++axis)
    if (sizes[axis] == kUnknownSize) sizes[axis] = axis == 0 ? batch : size;
  return sizes;
}

}  // namespace

Shape trial_shape(const Shape& shape, size_t trial) {
  int64_t size = trial_sizes().sizes[trial];
  const bool is_long = trial >= kFirstOfLong && trial < kLargeTrials;
  const int64_t batch = is_long && shape.size() == 1 ? size : trial_sizes().batches[trial];
  Shape sizes = filled(shape, batch, size);
  while (size > 3 && has_more(sizes, kMostTried)) {  // several large axes would exceed the size limit of a tensor
    size = std::max<int64_t>(size / 4 | (size & 1), 2);
    sizes = filled(shape, batch, size);
  }
  return has_more(sizes, kMostElements) ? filled(shape, static_cast<int64_t>(1 + trial % 2), size) : sizes;
}

std::array<Shape, kTrials> NamedTrials::of(const Shape& shape, const std::vector<std::string>& names) {
  std::array<Shape, kTrials> trials;
  const auto name_of = [&](size_t axis) { return axis < names.size() && shape[axis] == kUnknownSize ? names[axis] : std::string(); };
  const auto fill = [&](Shape& sizes, size_t trial) {
    for (size_t axis = 0; axis < sizes.size(); ++axis)
      if (const auto known = sizes_.find(name_of(axis)); known != sizes_.end()) sizes[axis] = known->second[trial];
  };
  for (size_t t = 0; t < kTrials; ++t) {
    Shape sizes = shape;
    fill(sizes, t);
    trials[t] = trial_shape(sizes, t);
  }
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (name_of(axis).empty()) continue;
    std::array<int64_t, kTrials> own;
    for (size_t t = 0; t < kTrials; ++t) own[t] = trials[t][axis];
    sizes_.try_emplace(name_of(axis), own);
  }
  for (size_t t = 0; t < kTrials; ++t) {
    fill(trials[t], t);  // a name used twice in this input
    if (has_more(trials[t], kMostElements)) trials[t] = trial_shape(shape, t);
  }
  return trials;
}

std::optional<Shape> common_shape(const std::array<const TensorDesc*, kTrials>& trials) {
  const TensorDesc* first = nullptr;
  size_t alike = 0;
  for (size_t t = 0; t < kLargeTrials; ++t) {
    if (!trials[t]) continue;
    if (!first) first = trials[t];
    if (trials[t]->rank() != first->rank()) return {};
    ++alike;
  }
  if (alike < 2) return {};
  Shape shape = first->shape;
  for (const TensorDesc* other : trials)
    for (size_t axis = 0; axis < shape.size() && other && other->rank() == first->rank(); ++axis)
      if (first->shape[axis] != other->shape[axis]) shape[axis] = kUnknownSize;
  return shape;
}

std::optional<Shape> broadcast_unknown(const std::vector<const Shape*>& shapes) {
  Shape made;
  for (const Shape* shape : shapes) made.resize(std::max(made.size(), shape->size()), 1);
  for (size_t back = 1; back <= made.size(); ++back) {
    int64_t& size = made[made.size() - back];
    for (const Shape* shape : shapes) {
      const int64_t told = back > shape->size() ? 1 : (*shape)[shape->size() - back];
      if (told == 1 || told == size) continue;
      if (told != kUnknownSize && size != 1 && size != kUnknownSize) return {};
      if (told != kUnknownSize || size == 1) size = told;
    }
  }
  return made;
}

void ShapeInference::set(ValueId value, TensorDesc desc) {
  descs_.set(value, std::move(desc));
}

void ShapeInference::set_host(ValueId value, HostTensor host) {
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

void ShapeInference::pack() {
  for (const auto& desc : descs_.all())
    if (desc && !desc->is_packed()) desc->strides = packed_strides(desc->shape);
}

ShapeInference::Known ShapeInference::take(ValueId value) {
  return {descs_.take(value), hosts_.take(value)};
}

bool ShapeInference::is_still(ValueId value, const Known& known) const {
  const TensorDesc* desc = descs_.find(value);
  const HostTensor* host = hosts_.find(value);
  if ((desc != nullptr) != known.desc.has_value() || (host != nullptr) != known.host.has_value()) return false;
  if (desc && *desc != *known.desc) return false;
  return !host || same_elements(*host, *known.host);
}

TensorDesc* ShapeInference::mutable_desc(ValueId value) {
  return const_cast<TensorDesc*>(desc(value));
}

const TensorDesc* ShapeInference::desc(ValueId value) const {
  if (const TensorDesc* known = descs_.find(value)) return known;
  const HostTensor* known = constant(value);
  return known ? &known->desc : nullptr;
}

const HostTensor* ShapeInference::host(ValueId value) const {
  if (const HostTensor* known = constant(value)) return known;
  return hosts_.find(value);
}

const HostTensor* ShapeInference::constant(ValueId value) const {
  const auto at = static_cast<size_t>(value);
  return value != kAbsent && at < constants_.size() ? constants_[at] : nullptr;
}

namespace {

// Runs a rule; in its errors, replaces the node with the caller's node.
template <typename Rule>
auto told_of_origin(const GraphNode& node, Rule&& rule) {
  try {
    return rule();
  } catch (const GraphError& error) {
    if (!node.origin) throw;
    throw GraphError(node.origin->node, std::string(node.origin->op) + ": " + error.what(), error.rule);
  }
}

}  // namespace

void ShapeInference::check(const GraphNode& node) const {
  if (!node.requirement) return;
  std::vector<const TensorDesc*> inputs;
  std::vector<const HostTensor*> hosts;
  for (const ValueId input : node.inputs) inputs.push_back(desc(input)), hosts.push_back(host(input));
  node.requirement->check(inputs, hosts);
}

bool ShapeInference::run(const GraphNode& node) {
  if (node.requirement) {
    const TensorDesc* given = desc(node.inputs[0]);
    if (given) set(node.outputs[0], TensorDesc(given->dtype, given->shape));
    return given != nullptr;
  }
  std::vector<const TensorDesc*> inputs(node.inputs.size());
  std::vector<const HostTensor*> hosts(node.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    inputs[i] = desc(node.inputs[i]);
    hosts[i] = host(node.inputs[i]);
    if (!inputs[i] && node.inputs[i] != kAbsent) return false;
  }
  ShapeContext context(node.name, node.attributes, std::move(inputs), std::move(hosts), node.outputs.size());
  told_of_origin(node, [&] { find_outputs(*node.row, context); });
  auto outputs = context.take_outputs();
  for (size_t i = 0; i < node.outputs.size(); ++i)
    if (node.outputs[i] != kAbsent && outputs[i]) set(node.outputs[i], std::move(*outputs[i]));
  return true;
}

void ShapeInference::join_residual(const GraphNode& node, ValueId residual, const std::string& residual_name) {
  TensorDesc& made = *mutable_desc(node.outputs[0]);
  const Shape& other = desc(residual)->shape;
  try {
    made = TensorDesc(made.dtype, broadcast_shape(made.shape, other));
  } catch (const GraphError&) {
    throw GraphError(node.name, "its result " + to_string(made.shape) + " and '" + residual_name + "' " + to_string(other) +
                                    ", which it is combined with, do not broadcast together");
  }
}

bool ShapeInference::assume(const GraphNode& node, DType dtype, size_t trial) {
  if (node.row->guess != HostGuess::shape || node.inputs.size() < 2) return false;
  const HostTensor* sizes = host(node.inputs[1]);
  if (!sizes || sizes->desc.rank() != 1 || sizes->desc.elements() > kMaxRank) return false;
  Shape shape = sizes->as_int64();
  const bool copies = node.attributes.integer("allowzero") == 0;
  for (int64_t& size : shape)
    if (size < 0 || (size == 0 && copies)) size = kUnknownSize;  // -1 or 0: copied from the input or inferred
  Shape sizes_of_trial = trial_shape(shape, trial);
  if (has_more(sizes_of_trial, kMostElements)) return false;
  set(node.outputs[0], TensorDesc(dtype, std::move(sizes_of_trial)));
  return true;
}

// Whether the inputs of evaluate() are known. Most nodes fail here, before anything is allocated for them.
bool ShapeInference::is_on_host(const GraphNode& node, int64_t most_elements) const {
  for (const ValueId input : node.inputs)
    if (input != kAbsent && !host(input) && !(node.row->reads_shapes_alone && desc(input))) return false;
  for (const ValueId output : node.outputs) {
    const TensorDesc* known = desc(output);
    if (output != kAbsent && (!known || known->elements() > most_elements)) return false;
  }
  return true;
}

bool ShapeInference::evaluate(const GraphNode& node, int64_t most_elements) {
  if (node.requirement) {
    const HostTensor* given = host(node.inputs[0]);
    if (given) set_host(node.outputs[0], *given);
    return given != nullptr;
  }
  if (!node.row->evaluate || !is_on_host(node, most_elements)) return false;
  std::vector<HostTensor> described(node.row->reads_shapes_alone ? node.inputs.size() : 0);
  std::vector<const HostTensor*> inputs(node.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    inputs[i] = host(node.inputs[i]);
    if (inputs[i] || node.inputs[i] == kAbsent) continue;
    described[i].desc = *desc(node.inputs[i]);
    inputs[i] = &described[i];
  }
  std::vector<TensorDesc> descs;
  if (tried_)  // run() has checked the rule; if sizes are known, passes may have changed the float dtypes since
    for (const ValueId output : node.outputs)
      if (const TensorDesc* known = desc(output)) descs.emplace_back(known->dtype, known->shape);
  if (descs.size() != node.outputs.size()) descs.clear();
  auto results =
      told_of_origin(node, [&] { return evaluate_on_host(*node.row, node.name, node.attributes, inputs, tried_, std::move(descs)); });
  if (!results) return false;
  for (size_t i = 0; i < node.outputs.size() && i < results->size(); ++i) {
    if (node.outputs[i] == kAbsent) continue;
    set(node.outputs[i], (*results)[i].desc);
    set_host(node.outputs[i], std::move((*results)[i]));
  }
  return true;
}

}  // namespace pumice

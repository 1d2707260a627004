#include "graph/nnapi/expansion.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "core/error.h"
#include "graph/nnapi/deferred_operand_check.h"
#include "operators/table/host_tensor_access.h"
#include "operators/table/onnx_dtype.h"

namespace pumice::nnapi {
namespace {

// Returns a host tensor with these elements.
HostTensor make_tensor(DType dtype, Shape shape, const std::vector<double>& elements) {
  HostTensorWriter writer(TensorDesc(dtype, std::move(shape)));
  for (size_t i = 0; i < elements.size(); ++i) writer.store(static_cast<int64_t>(i), elements[i]);
  return writer.take();
}

std::string format_operands(const std::vector<Operand>& roles) {
  std::string text;
  for (const Operand& operand : roles)
    text += (text.empty() ? "" : ", ") + std::string(operand.name) + (operand.variadic ? "..." : operand.optional ? "?" : "");
  return text;
}

constexpr int64_t kAssumed = 64;  // placeholder for an unknown size if only types are inferred

}  // namespace

std::vector<OperandInfo> collect_operand_info(const Graph& graph, const std::vector<ValueId>& operands) {
  std::vector<OperandInfo> facts;
  for (const ValueId id : operands) {
    if (id == kAbsent) {
      facts.emplace_back();
      continue;
    }
    const GraphValue& value = graph.value(id);
    const HostTensor* elements = graph.elements(id);
    facts.push_back({true, value.dtype, value.shape, elements ? std::optional(*elements) : std::nullopt});
  }
  return facts;
}

Expansion::Expansion(Graph& graph, const Operation& operation, std::string node, std::vector<ValueId> operands, const Attributes& declared,
                     bool infers_types_only)
    : graph_(graph),
      first_new_value_(static_cast<ValueId>(graph.values().size())),
      operation_(operation),
      node_(std::move(node)),
      operands_(std::move(operands)),
      rules_(operation, node_, collect_operand_info(graph, operands_)),
      infers_types_only_(infers_types_only) {
  for (const auto& [key, value] : declared.all())
    if (key != "scale" && key != "zero_point" && key != "dtype")
      fail("unknown keyword '" + key + "'; supported: scale, zero_point and dtype of the output operand");
  try {
    if (declared.has("scale")) {
      const auto* integer = std::get_if<int64_t>(&declared.all().at("scale"));
      declared_scale_ = static_cast<float>(integer ? static_cast<double>(*integer) : declared.real("scale"));
    }
    if (declared.has("zero_point")) {
      const int64_t zero = declared.integer("zero_point");
      if (!std::in_range<int32_t>(zero)) fail("'zero_point': a number of 32 bits expected; given " + std::to_string(zero));
      declared_zero_ = static_cast<int32_t>(zero);
    }
    if (declared.has("dtype")) declared_dtype_ = dtype_from_name(declared.text("dtype"));
  } catch (const GraphError& error) {
    fail(error.what());
  }
}

std::vector<Output> Expansion::run() {
  check_operand_count();
  for (size_t i = 0; i < operands_.size(); ++i) check_operand(i);
  check_type_letters();
  check_rules();
  try {
    operation_.expand(*this);
  } catch (const GraphError& error) {
    if (error.node == node_) throw;
    const std::string text = error.what();  // the message is about one of the expanded nodes and begins with the rule in brackets
    fail(error.rule, text.substr(error.rule.empty() ? 0 : error.rule.size() + 3));
  }
  if (!takes_quantization_ && (declared_scale_ || declared_zero_))
    fail("a scale or zero point is given for an output of " + std::string(pumice::name(value_of(outputs_[0].value).dtype)));
  if (!takes_dtype_ && declared_dtype_) fail("'dtype': the operands determine that of the output");
  return std::move(outputs_);
}

// Checks the rules of the operation. If facts about operands are unknown or assumed, adds nodes that check these operands at binding.
void Expansion::check_rules() {
  const Operands before = rules_;
  if (operation_.check) operation_.check(rules_);
  if (!rules_.is_undetermined()) return;
  const auto unread = operation_.unread ? operation_.unread(rules_) : std::nullopt;
  const auto requirement = std::make_shared<DeferredOperandCheck>(before);
  const auto is_tensor = [&](size_t i) { return rules_.get_operand_role(i).kind == OperandKind::tensor; };
  std::vector<size_t> checked_operands;  // operands whose type, shape or value is unknown
  std::vector<size_t> passed_operands;   // operands that pass through a check node
  for (size_t i = 0; i < operands_.size(); ++i) {
    if (!has(i)) continue;
    const bool is_unread = rules_.is_checked_per_call(i) || (!is_tensor(i) && !before.facts()[i].elements);
    if (!value(i).is_known() || is_unread) checked_operands.push_back(i);
    if (is_tensor(i) && rules_.is_assumed(i)) passed_operands.push_back(i);
  }
  if (passed_operands.empty()) {
    const auto open = std::ranges::find_if(checked_operands, is_tensor);
    size_t first = 0;
    while (!is_tensor(first)) ++first;
    passed_operands.push_back(open != checked_operands.end() ? *open : first);
  }
  std::vector<ValueId> check_nodes;
  for (const size_t i : passed_operands) check_nodes.push_back(add_check_node(i, requirement, checked_operands, unread));
  for (size_t k = 0; k < passed_operands.size(); ++k) {
    operands_[passed_operands[k]] = check_nodes[k];
    if (const auto& shape = rules_.facts()[passed_operands[k]].shape) refine_shape(check_nodes[k], *shape);
  }
}

// Adds a check node that returns operand `passed_operand` and checks the rules on `checked_operands`.
ValueId Expansion::add_check_node(size_t passed_operand, const std::shared_ptr<const DeferredOperandCheck>& requirement,
                                  const std::vector<size_t>& checked_operands, std::optional<size_t> unread) {
  DeferredOperandCheck node_requirement = *requirement;
  std::vector<ValueId> inputs(kFirstRequiredTensor, kAbsent);
  node_requirement.operand_of.assign(kFirstRequiredTensor, std::nullopt);
  inputs[0] = operands_[passed_operand];
  node_requirement.operand_of[0] = passed_operand;
  size_t list = kFirstRequiredList;
  for (const size_t i : checked_operands) {
    if (i == passed_operand && !rules_.is_checked_per_call(i)) continue;
    if (rules_.is_checked_per_call(i)) node_requirement.checked_at_calls.push_back(inputs.size());
    const bool is_read = rules_.get_operand_role(i).kind != OperandKind::tensor && i != unread;
    const size_t at = is_read ? list++ : inputs.size();
    if (at >= inputs.size()) inputs.push_back(kAbsent), node_requirement.operand_of.emplace_back();
    inputs[at] = operands_[i];
    node_requirement.operand_of[at] = i;
  }
  while (inputs.back() == kAbsent) inputs.pop_back();
  return graph_.add_check(std::make_shared<const DeferredOperandCheck>(std::move(node_requirement)), std::move(inputs),
                          node_ + "/" + std::to_string(graph_.nodes().size()) + "/Require");
}

// ---- errors

void Expansion::check_operand_count() const {
  const bool variadic = std::ranges::any_of(rules_.get_operand_roles(), &Operand::variadic);
  const auto& roles = rules_.get_operand_roles();
  // Optional operands come last. If required operands follow them, an omitted operand is kAbsent.
  size_t required = roles.size();
  while (!variadic && required > 0 && roles[required - 1].optional) --required;
  if (variadic) required = static_cast<size_t>(std::ranges::count(roles, false, &Operand::optional));
  if (operands_.size() >= required && (variadic || operands_.size() <= roles.size())) return;
  const std::string count_suffix = variadic ? " or more" : roles.size() > required ? " to " + std::to_string(roles.size()) : "";
  const std::string rule = operands_.size() < required ? "G1" : "";
  throw GraphError(node_,
                   std::string(operation_.name) + ": takes " + std::to_string(required) + count_suffix + " operands (" +
                       format_operands(roles) + "); given " + std::to_string(operands_.size()),
                   rule);
}

void Expansion::check_operand(size_t i) const {
  const Operand& expected = rules_.get_operand_role(i);
  if (!has(i)) {
    if (!expected.optional)
      throw GraphError(node_, std::string(operation_.name) + ": " + rules_.describe_operand(i) + ": it is required", "G1");
    return;
  }
  const GraphValue& actual = value(i);
  if (!contains(expected.dtypes, actual.dtype))
    fail(i, join_dtype_names(expected.dtypes) + " expected; given " + std::string(pumice::name(actual.dtype)));
  const bool channels = actual.quantization.channel_axis.has_value();
  if (contains(kQuant | kQuant16, actual.dtype) && actual.quantization.scale.empty())
    fail(i, "a scale is needed for " + std::string(pumice::name(actual.dtype)) + "; given none");
  if (channels && !expected.per_channel && actual.dtype != DType::int32)
    fail(i, "one scale expected; given " + to_string(actual.quantization));
  if (expected.kind == OperandKind::tensor || expected.kind == OperandKind::pairs || !actual.shape) return;
  const size_t rank = expected.kind == OperandKind::list ? 1 : 0;
  if (actual.shape->size() != rank) fail(i, (rank ? "a vector expected; given " : "a scalar expected; given ") + rules_.format_shape(i));
}

// Checks that operands with the same type letter have the same dtype.
void Expansion::check_type_letters() const {
  std::map<char, size_t> known;
  for (size_t i = 0; i < operands_.size(); ++i) {
    const char letter = rules_.get_operand_role(i).type;
    if (!has(i) || letter == 0) continue;
    const size_t first = known.emplace(letter, i).first->second;
    if (dtype(first) != dtype(i))
      fail(i, std::string(pumice::name(dtype(first))) + " expected, as " + rules_.describe_operand(first) + "; given " +
                  std::string(pumice::name(dtype(i))));
  }
}

// ---- operands

bool Expansion::is_quantized(const GraphValue& value) {
  return contains(kQuant | kQuant16, value.dtype) && !value.quantization.scale.empty();
}

const Shape& Expansion::shape(size_t i) const {
  if (!value(i).shape)
    throw UnknownShapeError("node '" + node_ + "': " + std::string(operation_.name) + " with " + rules_.describe_operand(i) +
                            ", of unknown rank");
  return *value(i).shape;
}

int64_t Expansion::size(size_t i, size_t axis) const {
  const Shape& actual = shape(i);
  if (actual.at(axis) != kUnknownSize) return actual[axis];  // the rules have already checked the rank
  if (infers_types_only_) return kAssumed;
  throw UnknownShapeError("node '" + node_ + "': " + std::string(operation_.name) + " with " + rules_.describe_operand(i) +
                          ", of unknown size on axis " + std::to_string(axis));
}

std::optional<std::vector<int64_t>> Expansion::known_ints(size_t i) const {
  const HostTensor* elements = graph_.elements(operands_[i]);
  return elements ? std::optional(elements->as_int64()) : std::nullopt;
}

std::vector<int64_t> Expansion::read_list(size_t i) const {
  auto actual = known_ints(i);
  if (!actual) reject(i, "which is not a constant");
  return std::move(*actual);
}

double Expansion::read_real(size_t i) const {
  const HostTensor* elements = graph_.elements(operands_[i]);
  if (!elements) reject(i, "which is not a constant");
  return elements->as_double().at(0);
}

int64_t Expansion::read_onnx_axis(size_t i, size_t x, size_t more, int64_t fallback) const {
  const auto& known = value(x).shape;
  return known ? static_cast<int64_t>(read_axis(i, known->size() + more, fallback)) : read_int(i, fallback);
}

Activation Expansion::read_activation(size_t i) const {
  const int64_t code = read_int(i);
  if (code < 0 || code > 3) fail(i, "0 (NONE), 1 (RELU), 2 (RELU1) or 3 (RELU6) expected; given " + std::to_string(code));
  if (code != 0 && dtype(0) == DType::int32) fail(i, "0 (NONE) expected for int32; given " + std::to_string(code));
  return static_cast<Activation>(code);
}

// ---- nodes

Attributes make_attrs(std::initializer_list<std::pair<std::string, AttributeValue>> named) {
  Attributes result_attributes;
  for (const auto& [key, value] : named) result_attributes.set(key, value);
  return result_attributes;
}

std::vector<ValueId> Expansion::add_multi_output(std::string_view op, std::vector<ValueId> inputs, size_t outputs,
                                                 const Attributes& attributes) {
  return graph_.add(op, std::move(inputs), attributes, outputs,
                    node_ + "/" + std::to_string(graph_.nodes().size()) + "/" + std::string(op));
}

ValueId Expansion::add(std::string_view op, std::vector<ValueId> inputs, const Attributes& attributes) {
  return add_multi_output(op, std::move(inputs), 1, attributes)[0];
}

ValueId Expansion::add_int64_vector(const std::vector<int64_t>& values) {
  HostTensorWriter writer(TensorDesc(DType::int64, {static_cast<int64_t>(values.size())}));
  for (size_t i = 0; i < values.size(); ++i) writer.store(static_cast<int64_t>(i), values[i]);
  return graph_.constant(writer.take());
}

ValueId Expansion::add_scalar(double number, DType dtype) {
  return graph_.constant(make_tensor(dtype, {}, {number}));
}

ValueId Expansion::add_vector(const std::vector<double>& values, DType dtype) {
  return graph_.constant(make_tensor(dtype, {static_cast<int64_t>(values.size())}, values));
}

ValueId Expansion::cast_to_int64(size_t i) {
  if (const auto values = known_ints(i); values && rank(i) == 1) return add_int64_vector(*values);
  return cast(operands_[i], DType::int64);
}

ValueId Expansion::add_runtime_axes(size_t i, ValueId x) {
  return add("pumice::DistinctAxes", {cast_to_int64(i), add("Shape", {add("Shape", {x})})});
}

ValueId Expansion::cast(ValueId id, DType dtype) {
  return value_of(id).dtype == dtype ? id : add("Cast", {id}, make_attrs({{"to", to_onnx_dtype(dtype)}}));
}

ValueId Expansion::bit_cast_to(ValueId id, DType dtype) {
  return add("BitCast", {id}, make_attrs({{"to", to_onnx_dtype(dtype)}}));
}

// ---- sizes

AxisLength Expansion::get_length(ValueId id, size_t axis) {
  const auto& shape = value_of(id).shape;
  if (shape && shape->at(axis) != kUnknownSize) return {shape->at(axis), kAbsent};
  const auto start = static_cast<int64_t>(axis);
  return {kUnknownSize, add("Shape", {id}, make_attrs({{"start", start}, {"end", start + 1}}))};
}

AxisLength Expansion::mul_lengths(const AxisLength& a, const AxisLength& b) {
  if (a.is_known() && b.is_known()) return {checked_mul(a.number, b.number, "a size"), kAbsent};
  return {kUnknownSize, add("Mul", {add_sizes({a}), add_sizes({b})})};
}

AxisLength Expansion::div_lengths(const AxisLength& a, const AxisLength& divisor) {
  if (divisor.is_known() && divisor.number == 1) return a;
  if (a.is_known() && divisor.is_known()) return {a.number / divisor.number, kAbsent};
  return {kUnknownSize, add("Div", {add_sizes({a}), add_sizes({divisor})})};
}

AxisLength Expansion::min_lengths(const AxisLength& a, const AxisLength& b) {
  if (a.is_known() && b.is_known()) return {std::min(a.number, b.number), kAbsent};
  return {kUnknownSize, add("Min", {add_sizes({a}), add_sizes({b})})};
}

AxisLength Expansion::get_element(ValueId list, int64_t position) {
  return {kUnknownSize, add("Slice", {list, add_int64_vector({position}), add_int64_vector({position + 1}), add_int64_vector({0})})};
}

ValueId Expansion::add_sizes(const std::vector<AxisLength>& lengths) {
  if (std::ranges::all_of(lengths, &AxisLength::is_known)) {
    std::vector<int64_t> numbers;
    for (const AxisLength& entry : lengths) numbers.push_back(entry.number);
    return add_int64_vector(numbers);
  }
  if (lengths.size() == 1) return lengths[0].value;
  std::vector<ValueId> parts;
  for (const AxisLength& entry : lengths) parts.push_back(entry.is_known() ? add_int64_vector({entry.number}) : entry.value);
  return add("Concat", parts, make_attrs({{"axis", int64_t{0}}}));
}

ValueId Expansion::reshape(ValueId id, const std::vector<AxisLength>& lengths) {
  Shape shape;
  for (const AxisLength& entry : lengths) shape.push_back(entry.is_known() ? entry.number : kUnknownSize);
  const ValueId y = add("Reshape", {id, add_sizes(lengths)}, make_attrs({{"allowzero", int64_t{1}}}));
  refine_shape(y, shape);
  return y;
}

ValueId Expansion::ensure_vector(ValueId id) {
  const ValueId sizes = add("Shape", {id}), one_size = add_int64_vector({1}), none = add_int64_vector({0});
  const ValueId missing = add("Max", {add("Sub", {one_size, add("Shape", {sizes})}), none});
  const ValueId before = add("Slice", {one_size, none, missing, none});
  return add("Reshape", {id, add("Concat", {before, sizes}, make_attrs({{"axis", int64_t{0}}}))}, make_attrs({{"allowzero", int64_t{1}}}));
}

ValueId Expansion::add_index_check(ValueId indices, ValueId x, int64_t axis) {
  return graph_.elements(indices) ? indices : add("pumice::Indices", {indices, x}, make_attrs({{"axis", axis}}));
}

// Adds a Transpose, or cancels an inverse one before it, so that consecutive image operations keep one layout.
ValueId Expansion::transpose(ValueId id, const std::vector<int64_t>& permutation) {
  if (const int32_t producer = value_of(id).producer; producer >= 0) {
    const GraphNode& node = graph_.nodes()[static_cast<size_t>(producer)];
    if (node.row == find_operator("Transpose")) {
      const auto first = node.attributes.integers("perm");
      bool inverse = first.size() == permutation.size();
      for (size_t i = 0; inverse && i < first.size(); ++i) inverse = first[static_cast<size_t>(permutation[i])] == static_cast<int64_t>(i);
      if (inverse) return node.inputs[0];
    }
  }
  return add("Transpose", {id}, make_attrs({{"perm", permutation}}));
}

ValueId Expansion::to_real(size_t i) {
  return is_quantized(i) ? dequantize(operands_[i], quantization(i)) : operands_[i];
}

ValueId Expansion::add_scales(const Quantization& quantization) {
  const std::vector<double> numbers(quantization.scale.begin(), quantization.scale.end());
  const Shape shape = quantization.channel_axis ? Shape{static_cast<int64_t>(numbers.size())} : Shape{};
  return graph_.constant(make_tensor(DType::float32, shape, numbers));
}

ValueId Expansion::dequantize(ValueId id, const Quantization& quantization) {
  const int64_t axis = quantization.channel_axis.value_or(0);
  if (quantization.zero_point.value_or(0) == 0)
    return add("DequantizeLinear", {id, add_scales(quantization)}, make_attrs({{"axis", axis}}));
  return add("DequantizeLinear", {id, add_scales(quantization), add_scalar(*quantization.zero_point, value_of(id).dtype)},
             make_attrs({{"axis", axis}}));
}

ValueId Expansion::quantize(ValueId id, const Quantization& quantization, DType dtype) {
  return add("QuantizeLinear", {id, add_scales(quantization), add_scalar(quantization.zero_point.value_or(0), dtype)});
}

ValueId Expansion::apply_activation(ValueId id, Activation activation) {
  const DType dtype = value_of(id).dtype;
  if (activation == Activation::none) return id;
  if (activation == Activation::relu) return add("Relu", {id});
  const bool six = activation == Activation::relu6;
  return add("Clip", {id, add_scalar(six ? 0 : -1, dtype), add_scalar(six ? 6 : 1, dtype)});
}

ValueId Expansion::apply_activation(ValueId id, Activation activation, const Quantization& quantization) {
  if (activation == Activation::none) return id;
  const DType dtype = value_of(id).dtype;
  const double min_integer = dtype == DType::int8 ? -128 : 0, max_integer = dtype == DType::int8 ? 127 : 255;
  const auto bound = [&](double real) {
    const double position = std::nearbyint(real / static_cast<double>(quantization.scale[0])) + quantization.zero_point.value_or(0);
    return std::clamp(position, min_integer, max_integer);
  };
  const bool six = activation == Activation::relu6, open = activation == Activation::relu;
  const double first = bound(activation == Activation::relu1 ? -1 : 0), last = open ? max_integer : bound(six ? 6 : 1);
  if (first == min_integer && last == max_integer)
    return id;  // no clamp is needed: exporters choose scales for which all integers are within the bounds
  return add("Clip", {id, add_scalar(first, dtype), add_scalar(last, dtype)});
}

// ---- outputs

Quantization Expansion::declared_quantization() {
  takes_quantization_ = true;
  if (!declared_scale_) fail("'scale' of the output is needed: its integers stand for (integer - zero_point) * scale");
  return {{*declared_scale_}, declared_zero_.value_or(0), {}};
}

Quantization Expansion::declared_quantization_or(const Quantization& fallback) {
  takes_quantization_ = true;
  return declared_scale_ || declared_zero_ ? declared_quantization() : fallback;
}

bool Expansion::is_declared(const Quantization& expected) const {
  return (!declared_scale_ || *declared_scale_ == expected.scale[0]) && (!declared_zero_ || declared_zero_ == expected.zero_point);
}

Quantization Expansion::require_quantization(const Quantization& expected, const std::string& why) {
  takes_quantization_ = true;
  if (!is_declared(expected))
    fail("an output of " + to_string(expected) + " expected" + why + "; given " +
         to_string(Quantization{{declared_scale_.value_or(expected.scale[0])}, declared_zero_ ? declared_zero_ : expected.zero_point, {}}));
  return expected;
}

Quantization Expansion::operand_quantization(size_t i) {
  return is_quantized(i) ? require_quantization(quantization(i), ", as " + rules_.describe_operand(i)) : Quantization{};
}

Quantization Expansion::fixed_quantization(float scale, int32_t zero_point) {
  return require_quantization({{scale}, zero_point, {}}, "");
}

void Expansion::expect_one_of_quantizations(const std::vector<Quantization>& outputs) {
  const auto found = std::ranges::find_if(outputs, [this](const Quantization& entry) { return is_declared(entry); });
  require_quantization(found == outputs.end() ? outputs[0] : *found, "");
}

std::optional<DType> Expansion::declared_dtype() {
  takes_dtype_ = true;
  return declared_dtype_;
}

void Expansion::add_output(ValueId id, Quantization quantization) {
  const bool is_new_node = value_of(id).producer >= 0 && std::ranges::find(operands_, id) == operands_.end() && id >= first_new_value_;
  if (!is_new_node) id = add("Identity", {id});
  outputs_.push_back({id, validate_quantization("the output", value_of(id).dtype, value_of(id).shape, std::move(quantization))});
}

void Expansion::add_real_output(ValueId id, size_t i) {
  if (!is_quantized(i)) return add_output(id);
  const Quantization quantization = declared_quantization();
  add_output(quantize(id, quantization, dtype(i)), quantization);
}

}  // namespace pumice::nnapi

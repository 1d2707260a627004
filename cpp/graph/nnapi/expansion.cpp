#include "graph/nnapi/expansion.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "core/error.h"
#include "graph/nnapi/requirement.h"
#include "operators/table/host_elements.h"
#include "operators/table/onnx_dtype.h"

namespace pumice::nnapi {
namespace {

// A constant of the given elements.
HostTensor tensor_of(DType dtype, Shape shape, const std::vector<double>& elements) {
  HostWriter writer(TensorDesc(dtype, std::move(shape)));
  for (size_t i = 0; i < elements.size(); ++i) writer.store(static_cast<int64_t>(i), elements[i]);
  return writer.take();
}

std::string operand_list(const std::vector<Operand>& roles) {
  std::string text;
  for (const Operand& operand : roles)
    text += (text.empty() ? "" : ", ") + std::string(operand.name) + (operand.variadic ? "..." : operand.optional ? "?" : "");
  return text;
}

constexpr int64_t kAssumed = 64;  // used for an unknown size if any size will do

}  // namespace

std::vector<Fact> facts_of(const Graph& graph, const std::vector<ValueId>& operands) {
  std::vector<Fact> facts;
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
                     bool assumes)
    : graph_(graph),
      first_value_(static_cast<ValueId>(graph.values().size())),
      operation_(operation),
      node_(std::move(node)),
      operands_(std::move(operands)),
      rules_(operation, node_, facts_of(graph, operands_)),
      assumes_(assumes) {
  for (const auto& [key, value] : declared.all())
    if (key != "scale" && key != "zero_point" && key != "dtype")
      fail("no keyword '" + key + "'; there are scale, zero_point and dtype, of the output operand");
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
  check_count();
  for (size_t i = 0; i < operands_.size(); ++i) check_operand(i);
  check_letters();
  check_rules();
  try {
    operation_.expand(*this);
  } catch (const GraphError& error) {
    if (error.node == node_) throw;
    const std::string text = error.what();  // message about one of the expanded nodes, after the rule in brackets
    fail(error.rule, text.substr(error.rule.empty() ? 0 : error.rule.size() + 3));
  }
  if (!takes_quantization_ && (declared_scale_ || declared_zero_))
    fail("a scale or zero point is given for an output of " + std::string(pumice::name(of(outputs_[0].value).dtype)));
  if (!takes_dtype_ && declared_dtype_) fail("'dtype': the operands give that of the output");
  return std::move(outputs_);
}

// Checks the operation's rules. If facts about operands are unknown or assumed, nodes are added that check these operands at binding.
void Expansion::check_rules() {
  const Operands before = rules_;
  if (operation_.check) operation_.check(rules_);
  if (!rules_.is_open()) return;
  const auto unread = operation_.unread ? operation_.unread(rules_) : std::nullopt;
  const auto requirement = std::make_shared<Requirement>(before);
  const auto is_tensor = [&](size_t i) { return rules_.role(i).kind == OperandKind::tensor; };
  std::vector<size_t> asked, passed;  // operands with unknown facts; operands that pass through a check
  for (size_t i = 0; i < operands_.size(); ++i) {
    if (!has(i)) continue;
    const bool is_unread = rules_.is_asked_at_calls(i) || (!is_tensor(i) && !before.facts()[i].elements);
    if (!value(i).is_known() || is_unread) asked.push_back(i);
    if (is_tensor(i) && rules_.is_assumed(i)) passed.push_back(i);
  }
  if (passed.empty()) {
    const auto open = std::ranges::find_if(asked, is_tensor);
    size_t first = 0;
    while (!is_tensor(first)) ++first;
    passed.push_back(open != asked.end() ? *open : first);
  }
  std::vector<ValueId> made;
  for (const size_t i : passed) made.push_back(guarded(i, requirement, asked, unread));
  for (size_t k = 0; k < passed.size(); ++k) {
    operands_[passed[k]] = made[k];
    if (const auto& shape = rules_.facts()[passed[k]].shape) refine(made[k], *shape);
  }
}

// Adds a node that returns operand `passed` and checks the rules on operands `asked`.
ValueId Expansion::guarded(size_t passed, const std::shared_ptr<const Requirement>& requirement, const std::vector<size_t>& asked,
                           std::optional<size_t> unread) {
  Requirement own = *requirement;
  std::vector<ValueId> inputs(kFirstRequiredTensor, kAbsent);
  own.operand_of.assign(kFirstRequiredTensor, std::nullopt);
  inputs[0] = operands_[passed];
  own.operand_of[0] = passed;
  size_t list = kFirstRequiredList;
  for (const size_t i : asked) {
    if (i == passed && !rules_.is_asked_at_calls(i)) continue;
    if (rules_.is_asked_at_calls(i)) own.asked_at_calls.push_back(inputs.size());
    const bool is_read = rules_.role(i).kind != OperandKind::tensor && i != unread;
    const size_t at = is_read ? list++ : inputs.size();
    if (at >= inputs.size()) inputs.push_back(kAbsent), own.operand_of.emplace_back();
    inputs[at] = operands_[i];
    own.operand_of[at] = i;
  }
  while (inputs.back() == kAbsent) inputs.pop_back();
  return graph_.require(std::make_shared<const Requirement>(std::move(own)), std::move(inputs),
                        node_ + "/" + std::to_string(graph_.nodes().size()) + "/Require");
}

// ---- errors

void Expansion::check_count() const {
  const bool variadic = std::ranges::any_of(rules_.roles(), &Operand::variadic);
  const auto& roles = rules_.roles();
  // Optional operands come last, or before required ones, in which case kAbsent takes their place.
  size_t required = roles.size();
  while (!variadic && required > 0 && roles[required - 1].optional) --required;
  if (variadic) required = static_cast<size_t>(std::ranges::count(roles, false, &Operand::optional));
  if (operands_.size() >= required && (variadic || operands_.size() <= roles.size())) return;
  const std::string most = variadic ? " or more" : roles.size() > required ? " to " + std::to_string(roles.size()) : "";
  const std::string rule = operands_.size() < required ? "G1" : "";
  throw GraphError(node_,
                   std::string(operation_.name) + ": takes " + std::to_string(required) + most + " operands (" + operand_list(roles) +
                       "); given " + std::to_string(operands_.size()),
                   rule);
}

void Expansion::check_operand(size_t i) const {
  const Operand& expected = rules_.role(i);
  if (!has(i)) {
    if (!expected.optional)
      throw GraphError(node_, std::string(operation_.name) + ": " + rules_.called(i) + ": it cannot be left out", "G1");
    return;
  }
  const GraphValue& given = value(i);
  if (!contains(expected.dtypes, given.dtype))
    fail(i, names(expected.dtypes) + " expected; given " + std::string(pumice::name(given.dtype)));
  const bool channels = given.quantization.channel_axis.has_value();
  if (contains(kQuant | kQuant16, given.dtype) && given.quantization.scale.empty())
    fail(i, "a scale is needed of " + std::string(pumice::name(given.dtype)) + "; given none");
  if (channels && !expected.per_channel && given.dtype != DType::int32)
    fail(i, "one scale expected; given " + to_string(given.quantization));
  if (expected.kind == OperandKind::tensor || expected.kind == OperandKind::pairs || !given.shape) return;
  const size_t rank = expected.kind == OperandKind::list ? 1 : 0;
  if (given.shape->size() != rank) fail(i, (rank ? "a vector expected; given " : "a scalar expected; given ") + rules_.shape_text(i));
}

// Operands with the same type letter must have the same dtype.
void Expansion::check_letters() const {
  std::map<char, size_t> known;
  for (size_t i = 0; i < operands_.size(); ++i) {
    const char letter = rules_.role(i).type;
    if (!has(i) || letter == 0) continue;
    const size_t first = known.emplace(letter, i).first->second;
    if (dtype(first) != dtype(i))
      fail(i, std::string(pumice::name(dtype(first))) + " expected, as " + rules_.called(first) + "; given " +
                  std::string(pumice::name(dtype(i))));
  }
}

// ---- operands

bool Expansion::is_quantized(const GraphValue& value) {
  return contains(kQuant | kQuant16, value.dtype) && !value.quantization.scale.empty();
}

const Shape& Expansion::shape(size_t i) const {
  if (!value(i).shape)
    throw UnknownShapeError("node '" + node_ + "': " + std::string(operation_.name) + " with " + rules_.called(i) + ", of unknown rank");
  return *value(i).shape;
}

int64_t Expansion::size(size_t i, size_t axis) const {
  const Shape& given = shape(i);
  if (given.at(axis) != kUnknownSize) return given[axis];  // the rules have checked the rank
  if (assumes_) return kAssumed;
  throw UnknownShapeError("node '" + node_ + "': " + std::string(operation_.name) + " with " + rules_.called(i) +
                          ", of unknown size on axis " + std::to_string(axis));
}

std::optional<std::vector<int64_t>> Expansion::known(size_t i) const {
  const HostTensor* elements = graph_.elements(operands_[i]);
  return elements ? std::optional(elements->as_int64()) : std::nullopt;
}

std::vector<int64_t> Expansion::list(size_t i) const {
  auto given = known(i);
  if (!given) refuse(i, "that is no constant");
  return std::move(*given);
}

double Expansion::real(size_t i) const {
  const HostTensor* elements = graph_.elements(operands_[i]);
  if (!elements) refuse(i, "that is no constant");
  return elements->as_double().at(0);
}

int64_t Expansion::any_axis(size_t i, size_t x, size_t more, int64_t fallback) const {
  const auto& known = value(x).shape;
  return known ? static_cast<int64_t>(axis(i, known->size() + more, fallback)) : integer(i, fallback);
}

Activation Expansion::activation(size_t i) const {
  const int64_t code = integer(i);
  if (code < 0 || code > 3) fail(i, "0 (NONE), 1 (RELU), 2 (RELU1) or 3 (RELU6) expected; given " + std::to_string(code));
  if (code != 0 && dtype(0) == DType::int32) fail(i, "0 (NONE) expected of int32; given " + std::to_string(code));
  return static_cast<Activation>(code);
}

// ---- nodes

Attributes with(std::initializer_list<std::pair<std::string, AttributeValue>> named) {
  Attributes made;
  for (const auto& [key, value] : named) made.set(key, value);
  return made;
}

std::vector<ValueId> Expansion::add_many(std::string_view op, std::vector<ValueId> inputs, size_t outputs, const Attributes& attributes) {
  return graph_.add(op, std::move(inputs), attributes, outputs,
                    node_ + "/" + std::to_string(graph_.nodes().size()) + "/" + std::string(op));
}

ValueId Expansion::add(std::string_view op, std::vector<ValueId> inputs, const Attributes& attributes) {
  return add_many(op, std::move(inputs), 1, attributes)[0];
}

ValueId Expansion::integers(const std::vector<int64_t>& values) {
  HostWriter writer(TensorDesc(DType::int64, {static_cast<int64_t>(values.size())}));
  for (size_t i = 0; i < values.size(); ++i) writer.store(static_cast<int64_t>(i), values[i]);
  return graph_.constant(writer.take());
}

ValueId Expansion::scalar(double number, DType dtype) {
  return graph_.constant(tensor_of(dtype, {}, {number}));
}

ValueId Expansion::numbers(const std::vector<double>& values, DType dtype) {
  return graph_.constant(tensor_of(dtype, {static_cast<int64_t>(values.size())}, values));
}

ValueId Expansion::as_int64(size_t i) {
  if (const auto values = known(i); values && rank(i) == 1) return integers(*values);
  return cast(operands_[i], DType::int64);
}

ValueId Expansion::axes_of(size_t i, ValueId x) {
  return add("pumice::DistinctAxes", {as_int64(i), add("Shape", {add("Shape", {x})})});
}

ValueId Expansion::cast(ValueId id, DType dtype) {
  return of(id).dtype == dtype ? id : add("Cast", {id}, with({{"to", onnx_number(dtype)}}));
}

ValueId Expansion::bits_as(ValueId id, DType dtype) {
  return add("BitCast", {id}, with({{"to", onnx_number(dtype)}}));
}

// ---- sizes

Length Expansion::length_of(ValueId id, size_t axis) {
  const auto& shape = of(id).shape;
  if (shape && shape->at(axis) != kUnknownSize) return {shape->at(axis), kAbsent};
  const auto start = static_cast<int64_t>(axis);
  return {kUnknownSize, add("Shape", {id}, with({{"start", start}, {"end", start + 1}}))};
}

Length Expansion::product(const Length& a, const Length& b) {
  if (a.is_known() && b.is_known()) return {checked_mul(a.number, b.number, "a size"), kAbsent};
  return {kUnknownSize, add("Mul", {sizes({a}), sizes({b})})};
}

Length Expansion::quotient(const Length& a, const Length& divisor) {
  if (divisor.is_known() && divisor.number == 1) return a;
  if (a.is_known() && divisor.is_known()) return {a.number / divisor.number, kAbsent};
  return {kUnknownSize, add("Div", {sizes({a}), sizes({divisor})})};
}

Length Expansion::least_of(const Length& a, const Length& b) {
  if (a.is_known() && b.is_known()) return {std::min(a.number, b.number), kAbsent};
  return {kUnknownSize, add("Min", {sizes({a}), sizes({b})})};
}

Length Expansion::element(ValueId list, int64_t place) {
  return {kUnknownSize, add("Slice", {list, integers({place}), integers({place + 1}), integers({0})})};
}

ValueId Expansion::sizes(const std::vector<Length>& lengths) {
  if (std::ranges::all_of(lengths, &Length::is_known)) {
    std::vector<int64_t> numbers;
    for (const Length& one : lengths) numbers.push_back(one.number);
    return integers(numbers);
  }
  if (lengths.size() == 1) return lengths[0].value;
  std::vector<ValueId> parts;
  for (const Length& one : lengths) parts.push_back(one.is_known() ? integers({one.number}) : one.value);
  return add("Concat", parts, with({{"axis", int64_t{0}}}));
}

ValueId Expansion::reshaped(ValueId id, const std::vector<Length>& lengths) {
  Shape shape;
  for (const Length& one : lengths) shape.push_back(one.is_known() ? one.number : kUnknownSize);
  const ValueId y = add("Reshape", {id, sizes(lengths)}, with({{"allowzero", int64_t{1}}}));
  refine(y, shape);
  return y;
}

ValueId Expansion::with_an_axis(ValueId id) {
  const ValueId sizes = add("Shape", {id}), one = integers({1}), none = integers({0});
  const ValueId missing = add("Max", {add("Sub", {one, add("Shape", {sizes})}), none});
  const ValueId before = add("Slice", {one, none, missing, none});
  return add("Reshape", {id, add("Concat", {before, sizes}, with({{"axis", int64_t{0}}}))}, with({{"allowzero", int64_t{1}}}));
}

ValueId Expansion::from_first(ValueId indices, ValueId x, int64_t axis) {
  return graph_.elements(indices) ? indices : add("pumice::Indices", {indices, x}, with({{"axis", axis}}));
}

// Cancels inverse transpositions: consecutive image operations keep one layout.
ValueId Expansion::transposed(ValueId id, const std::vector<int64_t>& permutation) {
  if (const int32_t producer = of(id).producer; producer >= 0) {
    const GraphNode& node = graph_.nodes()[static_cast<size_t>(producer)];
    if (node.row == find_operator("Transpose")) {
      const auto first = node.attributes.integers("perm");
      bool inverse = first.size() == permutation.size();
      for (size_t i = 0; inverse && i < first.size(); ++i) inverse = first[static_cast<size_t>(permutation[i])] == static_cast<int64_t>(i);
      if (inverse) return node.inputs[0];
    }
  }
  return add("Transpose", {id}, with({{"perm", permutation}}));
}

ValueId Expansion::reals(size_t i) {
  return is_quantized(i) ? dequantized(operands_[i], quantization(i)) : operands_[i];
}

ValueId Expansion::scales(const Quantization& quantization) {
  const std::vector<double> numbers(quantization.scale.begin(), quantization.scale.end());
  const Shape shape = quantization.channel_axis ? Shape{static_cast<int64_t>(numbers.size())} : Shape{};
  return graph_.constant(tensor_of(DType::float32, shape, numbers));
}

ValueId Expansion::dequantized(ValueId id, const Quantization& quantization) {
  const int64_t axis = quantization.channel_axis.value_or(0);
  if (quantization.zero_point.value_or(0) == 0) return add("DequantizeLinear", {id, scales(quantization)}, with({{"axis", axis}}));
  return add("DequantizeLinear", {id, scales(quantization), scalar(*quantization.zero_point, of(id).dtype)}, with({{"axis", axis}}));
}

ValueId Expansion::quantized(ValueId id, const Quantization& quantization, DType dtype) {
  return add("QuantizeLinear", {id, scales(quantization), scalar(quantization.zero_point.value_or(0), dtype)});
}

ValueId Expansion::activated(ValueId id, Activation activation) {
  const DType dtype = of(id).dtype;
  if (activation == Activation::none) return id;
  if (activation == Activation::relu) return add("Relu", {id});
  const bool six = activation == Activation::relu6;
  return add("Clip", {id, scalar(six ? 0 : -1, dtype), scalar(six ? 6 : 1, dtype)});
}

ValueId Expansion::activated(ValueId id, Activation activation, const Quantization& quantization) {
  if (activation == Activation::none) return id;
  const DType dtype = of(id).dtype;
  const double least = dtype == DType::int8 ? -128 : 0, most = dtype == DType::int8 ? 127 : 255;
  const auto bound = [&](double real) {
    const double place = std::nearbyint(real / static_cast<double>(quantization.scale[0])) + quantization.zero_point.value_or(0);
    return std::clamp(place, least, most);
  };
  const bool six = activation == Activation::relu6, open = activation == Activation::relu;
  const double first = bound(activation == Activation::relu1 ? -1 : 0), last = open ? most : bound(six ? 6 : 1);
  if (first == least && last == most) return id;  // no-op: exporters choose scales so that all integers are within the bounds
  return add("Clip", {id, scalar(first, dtype), scalar(last, dtype)});
}

// ---- outputs

Quantization Expansion::declared() {
  takes_quantization_ = true;
  if (!declared_scale_) fail("'scale' of the output is needed: its integers stand for (integer - zero_point) * scale");
  return {{*declared_scale_}, declared_zero_.value_or(0), {}};
}

Quantization Expansion::declared_or(const Quantization& otherwise) {
  takes_quantization_ = true;
  return declared_scale_ || declared_zero_ ? declared() : otherwise;
}

bool Expansion::is_declared(const Quantization& expected) const {
  return (!declared_scale_ || *declared_scale_ == expected.scale[0]) && (!declared_zero_ || declared_zero_ == expected.zero_point);
}

Quantization Expansion::must_be(const Quantization& expected, const std::string& why) {
  takes_quantization_ = true;
  if (!is_declared(expected))
    fail("an output of " + to_string(expected) + " expected" + why + "; given " +
         to_string(Quantization{{declared_scale_.value_or(expected.scale[0])}, declared_zero_ ? declared_zero_ : expected.zero_point, {}}));
  return expected;
}

Quantization Expansion::as_operand(size_t i) {
  return is_quantized(i) ? must_be(quantization(i), ", as " + rules_.called(i)) : Quantization{};
}

Quantization Expansion::fixed(float scale, int32_t zero_point) {
  return must_be({{scale}, zero_point, {}}, "");
}

void Expansion::fixed_in(const std::vector<Quantization>& outputs) {
  const auto found = std::ranges::find_if(outputs, [this](const Quantization& one) { return is_declared(one); });
  must_be(found == outputs.end() ? outputs[0] : *found, "");
}

std::optional<DType> Expansion::declared_dtype() {
  takes_dtype_ = true;
  return declared_dtype_;
}

void Expansion::give(ValueId id, Quantization quantization) {
  const bool made = of(id).producer >= 0 && std::ranges::find(operands_, id) == operands_.end() && id >= first_value_;
  if (!made) id = add("Identity", {id});
  outputs_.push_back({id, checked_quantization("the output", of(id).dtype, of(id).shape, std::move(quantization))});
}

void Expansion::give_reals(ValueId id, size_t i) {
  if (!is_quantized(i)) return give(id);
  const Quantization quantization = declared();
  give(quantized(id, quantization, dtype(i)), quantization);
}

}  // namespace pumice::nnapi

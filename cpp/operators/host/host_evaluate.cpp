#include "operators/host/host_evaluate.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/error.h"
#include "operators/geometry/slice_geometry.h"
#include "operators/host/host_node.h"
#include "operators/map/map_expression.h"
#include "operators/reduction/non_zero.h"
#include "operators/row/host_elements.h"

namespace pumice {
namespace {

using Inputs = std::span<const HostTensor* const>;
using Results = HostResults;

HostTensor integers_tensor(const TensorDesc& desc, const std::vector<int64_t>& values) {
  HostWriter writer(desc);
  for (size_t i = 0; i < values.size(); ++i) writer.store(static_cast<int64_t>(i), values[i]);
  return writer.take();
}

// An operand of a map: its elements, and which of them belongs to each element of the result.
template <typename T>
struct MapOperand {
  std::vector<T> elements;
  std::vector<size_t> positions;
  T* value;  // where the expression finds it
};

// Floats of at most 32 bits, which a device computes with in float32.
bool is_single(const HostNode& node) {
  return node.outputs[0].dtype != DType::float64 && std::none_of(node.inputs.begin(), node.inputs.end(), [](const HostTensor* input) {
           return input && input->desc.dtype == DType::float64;
         });
}

// The expression's value for an element: of integers, or of floats, each operation rounded as their type does.
int64_t value_of(const Expression& expression, const std::map<std::string, int64_t>& values, bool) {
  return expression.evaluate(values);
}
double value_of(const Expression& expression, const std::map<std::string, double>& values, bool single) {
  return expression.evaluate(values, single);
}

template <typename T>
HostTensor map_elements(const HostNode& node, const Expression& expression) {
  const auto names = map_input_names(node.row, node.inputs.size());
  const Shape& shape = node.outputs[0].shape;
  std::map<std::string, T> values;
  std::vector<MapOperand<T>> operands;
  for (size_t k = 0; k < node.inputs.size(); ++k) {
    if (!node.has(k)) continue;
    MapOperand<T> operand{elements_of<T>(node.input(k)), std::vector<size_t>(static_cast<size_t>(element_count(shape))), &values[names[k]]};
    const Shape& given = node.input(k).desc.shape;
    for_each_index(shape, broadcast_strides(given, packed_strides(given), shape),
                   [&](int64_t i, int64_t offset) { operand.positions[static_cast<size_t>(i)] = static_cast<size_t>(offset); });
    operands.push_back(std::move(operand));
  }
  HostWriter writer(node.outputs[0]);
  const bool single = is_single(node);
  for (int64_t i = 0; i < element_count(shape); ++i) {
    for (auto& operand : operands) *operand.value = operand.elements[operand.positions[static_cast<size_t>(i)]];
    writer.store(i, value_of(expression, values, single));
  }
  return writer.take();
}

bool has_floats(const HostNode& node) {
  return is_float(node.outputs[0].dtype) ||
         std::any_of(node.inputs.begin(), node.inputs.end(), [](const HostTensor* input) { return input && is_float(input->desc.dtype); });
}

Results evaluate_map(const HostNode& node) {
  std::vector<bool> present;
  for (size_t i = 0; i < node.inputs.size(); ++i) present.push_back(node.has(i));
  const Expression expression = map_expression(node.row, node.attributes, present);
  return one(has_floats(node) ? map_elements<double>(node, expression) : map_elements<int64_t>(node, expression));
}

template <typename T>
HostTensor cast_elements(const HostNode& node) {
  const auto elements = elements_of<T>(node.input(0));
  HostWriter writer(node.outputs[0]);
  for (size_t i = 0; i < elements.size(); ++i) writer.store(static_cast<int64_t>(i), elements[i]);
  return writer.take();
}

Results evaluate_cast(const HostNode& node) {
  return one(is_float(node.input(0).desc.dtype) ? cast_elements<double>(node) : cast_elements<int64_t>(node));
}

Results evaluate_view(const HostNode& node) {
  return one({node.outputs[0], node.input(0).owner, node.input(0).data});
}

Results evaluate_shape(const HostNode& node) {
  const Shape& shape = node.input(0).desc.shape;
  const auto rank = static_cast<int64_t>(shape.size());
  const int64_t start = node.attributes.integer("start", 0);
  const auto first = static_cast<std::ptrdiff_t>(std::clamp<int64_t>(start < 0 ? start + rank : start, 0, rank));
  return one(integers_tensor(node.outputs[0], {shape.begin() + first, shape.begin() + first + node.outputs[0].elements()}));
}

Results evaluate_size(const HostNode& node) {
  return one(integers_tensor(node.outputs[0], {node.input(0).desc.elements()}));
}

Results evaluate_position(const HostNode& node) {
  const int64_t given = node.integers(0).at(0), length = node.integers(1).at(0);
  const int64_t most = length - (node.attributes.integer("past") != 0 ? 0 : 1);
  if ((given < -length || given > most) && !node.tried)
    throw GraphError(std::string(node.name),
                     "expected a position in a sequence of " + std::to_string(length) + ", given " + std::to_string(given));
  return one(integers_tensor(node.outputs[0], {std::clamp<int64_t>(given < 0 ? given + length : given, 0, std::max<int64_t>(most, 0))}));
}

Results evaluate_constant(const HostNode& node) {
  const Attributes& attributes = node.attributes;
  if (const HostTensor* tensor = attributes.tensor("value")) return one(*tensor);
  if (attributes.has("value_int")) return one(integers_tensor(node.outputs[0], {attributes.integer("value_int")}));
  if (attributes.has("value_ints")) return one(integers_tensor(node.outputs[0], attributes.integers("value_ints")));
  const auto values =
      attributes.has("value_float") ? std::vector<double>{attributes.real("value_float")} : attributes.reals("value_floats");
  HostWriter writer(node.outputs[0]);
  for (size_t i = 0; i < values.size(); ++i) writer.store(static_cast<int64_t>(i), values[i]);
  return one(writer.take());
}

Results evaluate_transpose(const HostNode& node) {
  const Strides given = packed_strides(node.input(0).desc.shape);
  Strides strides(given.rbegin(), given.rend());
  const auto perm = node.attributes.integers("perm");
  for (size_t i = 0; i < perm.size(); ++i)
    strides[i] = given[static_cast<size_t>(perm[i] < 0 ? perm[i] + static_cast<int64_t>(given.size()) : perm[i])];
  return one(moved_elements(node.input(0), node.outputs[0], strides, 0));
}

Results evaluate_slice(const HostNode& node) {
  const Shape& shape = node.input(0).desc.shape;
  const auto slices = slice_geometry(node.name, shape, node.integers(1), node.integers(2), node.integers(3), node.integers(4));
  Strides strides = packed_strides(shape);
  int64_t first = 0;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    first += slices[axis].start * strides[axis];
    strides[axis] *= slices[axis].step;
  }
  return one(moved_elements(node.input(0), node.outputs[0], strides, first));
}

Results evaluate_expand(const HostNode& node) {
  const Shape& shape = node.input(0).desc.shape;
  return one(moved_elements(node.input(0), node.outputs[0], broadcast_strides(shape, packed_strides(shape), node.outputs[0].shape), 0));
}

Results evaluate_split(const HostNode& node) {
  const Shape& shape = node.input(0).desc.shape;
  const Strides strides = packed_strides(shape);
  const size_t axis = node.axis(0, shape);
  std::vector<HostTensor> parts;
  int64_t first = 0;
  for (const TensorDesc& desc : node.outputs) {
    parts.push_back(moved_elements(node.input(0), desc, strides, first));
    first += desc.shape[axis] * strides[axis];
  }
  return parts;
}

Results evaluate_concat(const HostNode& node) {
  const Shape& shape = node.outputs[0].shape;
  const size_t axis = node.axis(0, shape);
  const int64_t outer = element_count({shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(axis)}),
                row = element_count({shape.begin() + static_cast<std::ptrdiff_t>(axis), shape.end()});
  HostWriter writer(node.outputs[0]);
  int64_t begin = 0;
  for (const HostTensor* input : node.inputs) {
    const int64_t part = outer == 0 ? 0 : input->desc.elements() / outer;
    const size_t bytes = static_cast<size_t>(part) * writer.element_bytes();
    for (int64_t i = 0; i < outer && bytes > 0; ++i)
      std::memcpy(writer.at(i * row + begin), input->data + static_cast<size_t>(i) * bytes, bytes);
    begin += part;
  }
  return one(writer.take());
}

// Sums, products and extremes; none for the other reductions.
template <typename T>
std::optional<T> reduction_start(std::string_view name) {
  using Limits = std::numeric_limits<T>;
  if (name == "ReduceSum") return T{0};
  if (name == "ReduceProd") return T{1};
  if (name == "ReduceMax") return Limits::has_infinity ? -Limits::infinity() : Limits::min();
  if (name == "ReduceMin") return Limits::has_infinity ? Limits::infinity() : Limits::max();
  return {};
}

template <typename T>
Results reduce_elements(const HostNode& node) {
  const auto start = reduction_start<T>(node.row.name);
  if (!start) return {};
  const std::string_view name = node.row.name;
  const Expression step = Expression::parse(name == "ReduceSum"    ? "a + b"
                                            : name == "ReduceProd" ? "a * b"
                                            : name == "ReduceMax"  ? "max(a, b)"
                                                                   : "min(a, b)");
  const Shape& shape = node.input(0).desc.shape;
  auto axes = node.has(1) ? node.integers(1) : node.attributes.integers("axes");
  const bool all = axes.empty() && node.attributes.integer("noop_with_empty_axes", 0) == 0;
  Strides strides(shape.size());
  int64_t stride = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    const auto at = static_cast<int64_t>(axis), rank = static_cast<int64_t>(shape.size());
    const bool reduced = all || std::any_of(axes.begin(), axes.end(), [&](int64_t given) { return given == at || given + rank == at; });
    strides[axis] = reduced ? 0 : stride;
    if (!reduced) stride *= shape[axis];
  }
  const auto elements = elements_of<T>(node.input(0));
  std::vector<T> results(static_cast<size_t>(node.outputs[0].elements()), *start);
  for_each_index(shape, strides, [&](int64_t i, int64_t offset) {
    T& result = results[static_cast<size_t>(offset)];
    result = step.evaluate(std::map<std::string, T>{{"a", result}, {"b", elements[static_cast<size_t>(i)]}});
  });
  HostWriter writer(node.outputs[0]);
  for (size_t i = 0; i < results.size(); ++i) writer.store(static_cast<int64_t>(i), results[i]);
  return one(writer.take());
}

Results evaluate_reduce(const HostNode& node) {
  return is_float(node.input(0).desc.dtype) ? reduce_elements<double>(node) : reduce_elements<int64_t>(node);
}

template <typename T>
HostTensor range_elements(const HostNode& node) {
  const T first = elements_of<T>(node.input(0)).at(0), step = elements_of<T>(node.input(2)).at(0);
  HostWriter writer(node.outputs[0]);
  const Expression element = Expression::parse("first + i * step");
  const bool single = is_single(node);
  for (int64_t i = 0; i < node.outputs[0].elements(); ++i)
    writer.store(i, value_of(element, std::map<std::string, T>{{"first", first}, {"i", static_cast<T>(i)}, {"step", step}}, single));
  return writer.take();
}

Results evaluate_range(const HostNode& node) {
  return one(is_float(node.outputs[0].dtype) ? range_elements<double>(node) : range_elements<int64_t>(node));
}

template <typename T>
HostTensor scan_elements(const HostNode& node) {
  const Shape& shape = node.input(0).desc.shape;
  const int64_t given = node.integers(1).at(0);
  const auto axis = static_cast<size_t>(given < 0 ? given + static_cast<int64_t>(shape.size()) : given);
  const bool product = node.row.name == "CumProd", exclusive = node.attributes.integer("exclusive", 0) != 0,
             backwards = node.attributes.integer("reverse", 0) != 0;
  const Expression step = Expression::parse(product ? "a * b" : "a + b");
  const int64_t size = shape[axis], inner = packed_strides(shape)[axis];
  const auto elements = elements_of<T>(node.input(0));
  const bool single = is_single(node);
  HostWriter writer(node.outputs[0]);
  for (int64_t row = 0; size > 0 && row < static_cast<int64_t>(elements.size()) / size; ++row) {
    T sum = product ? T{1} : T{0};
    for (int64_t k = 0; k < size; ++k) {
      const int64_t at = row / inner * size * inner + row % inner + (backwards ? size - 1 - k : k) * inner;
      if (exclusive) writer.store(at, sum);
      sum = value_of(step, std::map<std::string, T>{{"a", sum}, {"b", elements[static_cast<size_t>(at)]}}, single);
      if (!exclusive) writer.store(at, sum);
    }
  }
  return writer.take();
}

Results evaluate_scan(const HostNode& node) {
  return one(is_float(node.input(0).desc.dtype) ? scan_elements<double>(node) : scan_elements<int64_t>(node));
}

using Evaluation = Results (*)(const HostNode&);

Evaluation evaluation_of(const OperatorRow& row) {
  static const std::map<std::string_view, Evaluation> by_name = {{"Cast", evaluate_cast},
                                                                 {"Shape", evaluate_shape},
                                                                 {"Constant", evaluate_constant},
                                                                 {"Transpose", evaluate_transpose},
                                                                 {"Slice", evaluate_slice},
                                                                 {"Split", evaluate_split},
                                                                 {"Expand", evaluate_expand},
                                                                 {"Concat", evaluate_concat},
                                                                 {"Gather", evaluate_gather},
                                                                 {"GatherElements", evaluate_gather_elements},
                                                                 {"GatherND", evaluate_gather_nd},
                                                                 {"ScatterElements", evaluate_scatter_elements},
                                                                 {"ScatterND", evaluate_scatter_nd},
                                                                 {"Size", evaluate_size},
                                                                 {"BitCast", evaluate_view},
                                                                 {"pumice::Position", evaluate_position},
                                                                 {"ConstantOfShape", evaluate_constant_of_shape},
                                                                 {"OneHot", evaluate_one_hot},
                                                                 {"Trilu", evaluate_trilu},
                                                                 {"Tile", evaluate_tile},
                                                                 {"TopK", evaluate_topk},
                                                                 {"NonZero", evaluate_non_zero},
                                                                 {"Compress", evaluate_compress},
                                                                 {kCountNonZero, evaluate_count_non_zero},
                                                                 {"pumice::NonZero", evaluate_non_zero},
                                                                 {"pumice::Compress", evaluate_compress},
                                                                 {"ReduceSum", evaluate_reduce},
                                                                 {"ReduceProd", evaluate_reduce},
                                                                 {"ReduceMax", evaluate_reduce},
                                                                 {"ReduceMin", evaluate_reduce},
                                                                 {"Range", evaluate_range},
                                                                 {"CumSum", evaluate_scan},
                                                                 {"CumProd", evaluate_scan}};
  if (const auto found = by_name.find(row.name); found != by_name.end()) return found->second;
  if (row.skeleton == Skeleton::view) return evaluate_view;
  return row.skeleton == Skeleton::map && !row.expression.empty() ? evaluate_map : nullptr;
}

// The host computes in int64.
bool is_beyond_int64(const HostTensor& tensor) {
  if (tensor.desc.dtype != DType::uint64) return false;
  const auto values = tensor.as_int64();
  return std::any_of(values.begin(), values.end(), [](int64_t value) { return value < 0; });
}

// As many as there are, or the parts of a Split; 0 where they are not stated.
size_t output_count(const OperatorRow& row, const Attributes& attributes, Inputs inputs) {
  if (row.name == "TopK" || row.name == kCountNonZero) return 2;
  if (row.name != "Split") return 1;
  if (inputs.size() > 1 && inputs[1]) return static_cast<size_t>(inputs[1]->desc.elements());
  return static_cast<size_t>(std::clamp<int64_t>(attributes.integer("num_outputs", 0), 0, inputs[0]->desc.elements()));
}

// The outputs that the row's shape rule gives.
std::vector<TensorDesc> output_descs(const OperatorRow& row, std::string_view node, const Attributes& attributes, Inputs inputs,
                                     size_t count) {
  std::vector<const TensorDesc*> descs;
  for (const HostTensor* input : inputs) descs.push_back(input ? &input->desc : nullptr);
  ShapeContext context(node, attributes, descs, {inputs.begin(), inputs.end()}, count);
  row.shape(context);
  std::vector<TensorDesc> outputs;
  for (auto& desc : context.take_outputs()) outputs.push_back(std::move(desc.value()));
  return outputs;
}

}  // namespace

bool has_host_evaluation(const OperatorRow& row) {
  return evaluation_of(row) != nullptr;
}

bool reads_shapes_alone(const OperatorRow& row) {
  return row.name == "Shape" || row.name == "Size";
}

std::optional<std::vector<HostTensor>> evaluate_on_host(const OperatorRow& row, std::string_view node, const Attributes& attributes,
                                                        Inputs inputs, bool tried) {
  const Evaluation evaluate = evaluation_of(row);
  if (!evaluate) return {};
  const bool reads_values = !reads_shapes_alone(row);
  for (const HostTensor* input : inputs)
    if (input && reads_values && ((!input->data && input->desc.elements() > 0) || is_narrow(input->desc.dtype))) return {};
  for (const HostTensor* input : inputs)
    if (input && reads_values && is_beyond_int64(*input)) return {};
  const size_t outputs = output_count(row, attributes, inputs);
  if (outputs == 0) return {};
  const HostNode known{row, node, attributes, inputs, output_descs(row, node, attributes, inputs, outputs), tried};
  for (const TensorDesc& made : known.outputs)
    if (is_narrow(made.dtype)) return {};
  try {
    return evaluate(known);
  } catch (const GraphError&) {
    throw;
  } catch (const Error&) {
    return {};  // an expression without a value, as of an integer divided by zero
  }
}

}  // namespace pumice

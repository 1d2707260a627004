// Operator rows of elementwise operators, each defined by a scalar expression. shaders/include/math.glsl states the errors of elementary
// functions.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"
#include "operators/common/split_axes.h"
#include "operators/elementwise/lowerings.h"
#include "operators/host/host_node.h"
#include "operators/table/onnx_dtype.h"
#include "operators/table/row_builders.h"

namespace pumice {
namespace {

constexpr DTypeSet kArithmetic = kNumbers | kDouble;
constexpr DTypeSet kElementwiseTypes = kArithmetic | kBool;
constexpr DTypeSet kCastTypes = kElementwiseTypes | kLowBit;

void infer_broadcast_shape(ShapeContext& node) {
  node.output(0, node.input(0).dtype, broadcast_inputs(node));
}

void infer_predicate_shape(ShapeContext& node) {
  node.output(0, DType::bool_, broadcast_inputs(node));
}

void infer_pow_shape(ShapeContext& node) {
  node.output(0, node.input(0).dtype, broadcast_inputs(node));
}

void infer_where_shape(ShapeContext& node) {
  node.output(0, node.input(1).dtype, broadcast_inputs(node));
}

// The slope is broadcast to the shape of x; x itself is not broadcast.
void infer_prelu_shape(ShapeContext& node) {
  if (broadcast_inputs(node) != node.input(0).shape)
    node.fail("a slope of shape " + to_string(node.input(1).shape) + " does not broadcast to " + to_string(node.input(0).shape));
  infer_shape_like_input(node);
}

void infer_clip_shape(ShapeContext& node) {
  for (size_t i = 1; i < node.input_count(); ++i)
    if (node.has(i) && node.input(i).elements() != 1)
      node.fail("the bound in input " + std::to_string(i) + " must be a scalar; given " + to_string(node.input(i).shape));
  infer_shape_like_input(node);
}

void infer_cast_like_shape(ShapeContext& node) {
  node.output(0, node.input(1).dtype, node.input(0).shape);
}

void infer_cast_shape(ShapeContext& node) {
  const auto dtype = from_onnx_dtype(node.attributes().integer("to"));
  if (!dtype || !contains(kCastTypes, *dtype))
    throw UnsupportedError("node '" + std::string(node.node()) + "': Cast to " +
                           (dtype ? std::string(name(*dtype)) : "ONNX element type " + std::to_string(node.attributes().integer("to"))));
  node.output(0, *dtype, node.input(0).shape);
}

using AttributeSchemas = std::vector<AttributeSchema>;

// Adds the properties that all operators with a scalar expression have.
OperatorRow make_elementwise_row(OperatorRow row) {
  set_elementwise_properties(row);
  row.evaluate = evaluate_elementwise;
  return row;
}

OperatorRow make_unary_row(std::string_view name, std::string_view expression, DTypeSet dtypes = kFloats,
                           AttributeSchemas attributes = {}) {
  return make_elementwise_row({.name = name,
                               .schema = {.inputs = {value_role("x", dtypes)},
                                          .outputs = {value_role("y", dtypes)},
                                          .attributes = std::move(attributes),
                                          .in_place = 0b1},
                               .shape = infer_shape_like_input,
                               .expression = expression});
}

OperatorRow make_float_predicate_row(std::string_view name, std::string_view expression, AttributeSchemas attributes = {}) {
  return make_elementwise_row(
      {.name = name,
       .schema = {.inputs = {value_role("x", kReals)}, .outputs = {value_role("y", kBool)}, .attributes = std::move(attributes)},
       .shape = infer_predicate_shape,
       .expression = expression});
}

OperatorRow make_binary_row(std::string_view name, std::string_view expression, DTypeSet dtypes = kArithmetic,
                            AttributeSchemas attributes = {}) {
  return make_elementwise_row({.name = name,
                               .schema = {.inputs = {value_role("a", dtypes, 'T'), value_role("b", dtypes, 'T')},
                                          .outputs = {value_role("y", dtypes)},
                                          .attributes = std::move(attributes),
                                          .in_place = 0b11},
                               .shape = infer_broadcast_shape,
                               .expression = expression});
}

OperatorRow make_comparison_row(std::string_view name, std::string_view expression, DTypeSet dtypes = kArithmetic) {
  const uint32_t in_place = dtypes == kBool ? 0b11 : 0;
  return make_elementwise_row({.name = name,
                               .schema = {.inputs = {value_role("a", dtypes, 'T'), value_role("b", dtypes, 'T')},
                                          .outputs = {value_role("y", kBool)},
                                          .in_place = in_place},
                               .shape = infer_predicate_shape,
                               .expression = expression});
}

OperatorRow make_variadic_row(std::string_view name, std::string_view expression, DTypeSet dtypes = kArithmetic) {
  return make_elementwise_row(
      {.name = name,
       .schema = {.inputs = {variadic_role("a", dtypes, 'T')}, .outputs = {value_role("y", dtypes)}, .in_place = 0b1},
       .shape = infer_broadcast_shape,
       .expression = expression});
}

void add_elementary_functions(OperatorRows& rows) {
  for (const auto& [name, expression] :
       std::initializer_list<std::pair<std::string_view, std::string_view>>{{"Log", "log(x)"},
                                                                            {"Sqrt", "sqrt(x)"},
                                                                            {"Reciprocal", "1 / x"},
                                                                            {"Erf", "erf(x)"},
                                                                            {"Floor", "floor(x)"},
                                                                            {"Ceil", "ceil(x)"},
                                                                            {"Round", "round_even(x)"},
                                                                            {"Sin", "sin(x)"},
                                                                            {"Cos", "cos(x)"},
                                                                            {"Tan", "tan(x)"},
                                                                            {"Asin", "asin(x)"},
                                                                            {"Acos", "acos(x)"},
                                                                            {"Atan", "atan(x)"},
                                                                            {"Tanh", "tanh(x)"},
                                                                            {"Asinh", "asinh(x)"},
                                                                            {"Acosh", "acosh(x)"},
                                                                            {"Atanh", "atanh(x)"},
                                                                            {"Sigmoid", "sigmoid(x)"},
                                                                            {"Softplus", "softplus(x)"},
                                                                            {"Softsign", "x / (1 + abs(x))"},
                                                                            {"Mish", "x * tanh(softplus(x))"},
                                                                            {"HardSwish", "x * max(0, min(1, x / 6 + 0.5))"}})
    rows.push_back(make_unary_row(name, expression, kReals));
  for (const auto& [name, expression] : {std::pair("Exp", "exp(x)"), std::pair("Sinh", "sinh(x)"), std::pair("Cosh", "cosh(x)")})
    rows.push_back(make_unary_row(name, expression, kReals)), rows.back().precision.overflows = true;
  rows.push_back(make_unary_row("Abs", "abs(x)", kArithmetic));
  rows.push_back(make_unary_row("Sign", "sign(x)", kArithmetic));
  rows.push_back(make_unary_row("Neg", "-x", kReals | kSigned));
}

void add_activations(OperatorRows& rows) {
  rows.push_back(make_unary_row("Relu", "max(x, 0)", kReals | kSigned));
  rows.push_back(make_unary_row("LeakyRelu", "x < 0 ? alpha * x : x", kReals, {real_attribute("alpha", 0.01)}));
  rows.push_back(make_unary_row("ThresholdedRelu", "x > alpha || isnan(x) ? x : 0", kReals, {real_attribute("alpha", 1)}));
  rows.push_back(make_unary_row("Elu", "x < 0 ? alpha * expm1(x) : x", kReals, {real_attribute("alpha", 1)}));
  rows.push_back(make_unary_row("Celu", "x < 0 ? alpha * expm1(x / alpha) : x", kReals, {real_attribute("alpha", 1)}));
  // The defaults of alpha and gamma are the float32 values in the ONNX specification.
  rows.push_back(make_unary_row("Selu", "gamma * (x > 0 ? x : alpha * expm1(x))", kReals,
                                {real_attribute("alpha", 1.67326319217681884765625), real_attribute("gamma", 1.05070102214813232421875)}));
  rows.push_back(make_unary_row("HardSigmoid", "max(0, min(1, alpha * x + beta))", kReals,
                                {real_attribute("alpha", 0.2), real_attribute("beta", 0.5)}));
  rows.push_back(make_unary_row("Gelu",
                                "approximate == 'tanh' ? 0.5 * x * (1 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x))) : x * "
                                "normal_cdf(x)",
                                kReals, {choice_attribute("approximate", "none", {"none", "tanh"})}));
  rows.push_back(make_unary_row("Swish", "x * sigmoid(alpha * x)", kReals, {real_attribute("alpha", 1)}));
  rows.push_back(make_unary_row("Shrink", "x < -lambd ? x + bias : x > lambd ? x - bias : 0", kReals,
                                {real_attribute("lambd", 0.5), real_attribute("bias", 0)}));
  rows.push_back(make_elementwise_row({.name = "PRelu",
                                       .schema = {.inputs = {value_role("x", kReals, 'T'), value_role("slope", kReals, 'T')},
                                                  .outputs = {value_role("y", kReals)},
                                                  .in_place = 0b1},
                                       .shape = infer_prelu_shape,
                                       .expression = "x < 0 ? slope * x : x"}));
  rows.push_back(make_elementwise_row({.name = "Clip",
                                       .schema = {.inputs = {value_role("x", kArithmetic, 'T'), optional_role("low", kArithmetic, 'T'),
                                                             optional_role("high", kArithmetic, 'T')},
                                                  .outputs = {value_role("y", kArithmetic)},
                                                  .in_place = 0b1},
                                       .shape = infer_clip_shape,
                                       .expression = "min(max(x, low), high)",
                                       .precision = {.lower_bound_inputs = make_input_mask(1), .upper_bound_inputs = make_input_mask(2)}}));
}

void add_arithmetic_operators(OperatorRows& rows) {
  rows.push_back(make_binary_row("Add", "a + b"));
  rows.push_back(make_binary_row("Sub", "a - b"));
  rows.push_back(make_binary_row("Mul", "a * b"));
  rows.push_back(make_binary_row("Div", "a / b"));
  rows.push_back(make_binary_row("pumice::FloorDivide", "floor_divide(a, b)", kIndices));  // 0 if b is 0
  rows.push_back(
      make_binary_row("pumice::RoundDivide", "(a + (a < 0 ? -(b / 2) : b / 2)) / b", kIndices));  // b > 0; rounds halves away from 0
  rows.push_back(make_binary_row("Mod", "fmod != 0 ? fmod(a, b) : mod(a, b)", kArithmetic, {integer_attribute("fmod", 0)}));
  constexpr DTypeSet bases = kFloats | kIndices;
  rows.push_back(make_elementwise_row(
      {.name = "Pow",
       .schema = {.inputs = {value_role("a", bases), value_role("b", kNumbers)}, .outputs = {value_role("y", bases)}, .in_place = 0b11},
       .shape = infer_pow_shape,
       .expression = "pow(a, b)",
       .precision = {.overflows = true}}));
  rows.push_back(make_variadic_row("Min", "min(a, b)"));
  rows.push_back(make_variadic_row("Max", "max(a, b)"));
  rows.push_back(make_variadic_row("Sum", "a + b", kReals));
  rows.push_back(make_variadic_row("Mean", "a + b; y / count", kReals));
}

void add_logical_operators(OperatorRows& rows) {
  rows.push_back(make_comparison_row("Equal", "a == b", kElementwiseTypes));
  rows.push_back(make_comparison_row("Less", "a < b"));
  rows.push_back(make_comparison_row("LessOrEqual", "a <= b"));
  rows.push_back(make_comparison_row("Greater", "a > b"));
  rows.push_back(make_comparison_row("GreaterOrEqual", "a >= b"));
  rows.push_back(make_comparison_row("And", "a && b", kBool));
  rows.push_back(make_comparison_row("Or", "a || b", kBool));
  rows.push_back(make_comparison_row("Xor", "a != b", kBool));
  rows.push_back(make_unary_row("Not", "!x", kBool));
  rows.push_back(make_float_predicate_row("IsNaN", "isnan(x)"));
  rows.push_back(make_float_predicate_row("IsInf", "isinf(x) && (x > 0 ? detect_positive != 0 : detect_negative != 0)",
                                          {integer_attribute("detect_negative", 1), integer_attribute("detect_positive", 1)}));
  rows.push_back(make_elementwise_row({.name = "Where",
                                       .schema = {.inputs = {value_role("condition", kBool), value_role("a", kElementwiseTypes, 'T'),
                                                             value_role("b", kElementwiseTypes, 'T')},
                                                  .outputs = {value_role("y", kElementwiseTypes)}},
                                       .shape = infer_where_shape,
                                       .expression = "condition ? a : b"}));
}

void add_bitwise_operators(OperatorRows& rows) {
  rows.push_back(make_binary_row("BitwiseAnd", "a & b", kIntegers));
  rows.push_back(make_binary_row("BitwiseOr", "a | b", kIntegers));
  rows.push_back(make_binary_row("BitwiseXor", "a ^ b", kIntegers));
  rows.push_back(make_unary_row("BitwiseNot", "~x", kIntegers));
  AttributeSchema direction = required_attribute("direction", AttributeKind::text);
  direction.choices = {"LEFT", "RIGHT"};
  rows.push_back(
      make_binary_row("BitShift", "direction == 'LEFT' ? shift_left(a, b) : shift_right(a, b)", kIntegers, {std::move(direction)}));
}

}  // namespace

void set_elementwise_properties(OperatorRow& row) {
  row.skeleton = KernelKind::map;
  row.lower = lower_elementwise;
  row.strides = StrideSupport::image;
  row.split = append_elementwise_split_axes;
  row.precision.mixed_precision = row.elementwise = true;
}

OperatorRows define_elementwise_operators() {
  OperatorRows rows;
  add_elementary_functions(rows);
  add_activations(rows);
  add_arithmetic_operators(rows);
  add_logical_operators(rows);
  add_bitwise_operators(rows);
  rows.push_back(
      {.name = "Cast",
       .skeleton = KernelKind::map,
       .schema = {.inputs = {value_role("x", kCastTypes)},
                  .outputs = {value_role("y", kCastTypes)},
                  .attributes = {required_attribute("to", AttributeKind::integer), optional_attribute("saturate", AttributeKind::integer),
                                 optional_attribute("round_mode", AttributeKind::text)}},
       .shape = infer_cast_shape,
       .lower = lower_cast,
       .strides = StrideSupport::image,
       .split = append_elementwise_split_axes,
       .evaluate = evaluate_cast,
       .precision = {.mixed_precision = true},
       .elementwise = true,
       .casts = true});
  rows.push_back({.name = "CastLike",
                  .skeleton = KernelKind::map,
                  .schema = {.inputs = {value_role("x", kCastTypes), value_role("like", kCastTypes)},
                             .outputs = {value_role("y", kCastTypes)},
                             .attributes = {optional_attribute("saturate", AttributeKind::integer),
                                            optional_attribute("round_mode", AttributeKind::text)}},
                  .shape = infer_cast_like_shape,
                  .lower = lower_cast,
                  .strides = StrideSupport::image,
                  .split = append_elementwise_split_axes,
                  .precision = {.mixed_precision = true},
                  .elementwise = true,
                  .casts = true});
  return rows;
}

}  // namespace pumice

// Elementwise operators, one scalar expression each. Errors of elementary functions are stated in shaders/include/math.glsl.
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

void shape_of_broadcast(ShapeContext& node) {
  node.output(0, node.input(0).dtype, broadcast_inputs(node));
}

void shape_of_predicate(ShapeContext& node) {
  node.output(0, DType::bool_, broadcast_inputs(node));
}

void shape_of_pow(ShapeContext& node) {
  node.output(0, node.input(0).dtype, broadcast_inputs(node));
}

void shape_of_where(ShapeContext& node) {
  node.output(0, node.input(1).dtype, broadcast_inputs(node));
}

// The slope is broadcast to the shape of x; x itself is not broadcast.
void shape_of_prelu(ShapeContext& node) {
  if (broadcast_inputs(node) != node.input(0).shape)
    node.fail("a slope of shape " + to_string(node.input(1).shape) + " does not broadcast to " + to_string(node.input(0).shape));
  shape_like_input(node);
}

void shape_of_clip(ShapeContext& node) {
  for (size_t i = 1; i < node.input_count(); ++i)
    if (node.has(i) && node.input(i).elements() != 1)
      node.fail("the bound in input " + std::to_string(i) + " must be a scalar; given " + to_string(node.input(i).shape));
  shape_like_input(node);
}

void shape_of_cast_like(ShapeContext& node) {
  node.output(0, node.input(1).dtype, node.input(0).shape);
}

void shape_of_cast(ShapeContext& node) {
  const auto dtype = dtype_from_onnx(node.attributes().integer("to"));
  if (!dtype || !contains(kCastTypes, *dtype))
    throw UnsupportedError("node '" + std::string(node.node()) + "': Cast to " +
                           (dtype ? std::string(name(*dtype)) : "ONNX element type " + std::to_string(node.attributes().integer("to"))));
  node.output(0, *dtype, node.input(0).shape);
}

using AttributeSchemas = std::vector<AttributeSchema>;

// Adds the properties common to all operators with a scalar expression.
OperatorRow make_elementwise_row(OperatorRow row) {
  set_elementwise_properties(row);
  row.evaluate = evaluate_elementwise;
  return row;
}

OperatorRow make_unary_row(std::string_view name, std::string_view expression, DTypeSet dtypes = kFloats,
                           AttributeSchemas attributes = {}) {
  return make_elementwise_row(
      {.name = name,
       .schema = {.inputs = {value("x", dtypes)}, .outputs = {value("y", dtypes)}, .attributes = std::move(attributes), .in_place = 0b1},
       .shape = shape_like_input,
       .expression = expression});
}

OperatorRow make_float_predicate_row(std::string_view name, std::string_view expression, AttributeSchemas attributes = {}) {
  return make_elementwise_row(
      {.name = name,
       .schema = {.inputs = {value("x", kReals)}, .outputs = {value("y", kBool)}, .attributes = std::move(attributes)},
       .shape = shape_of_predicate,
       .expression = expression});
}

OperatorRow make_binary_row(std::string_view name, std::string_view expression, DTypeSet dtypes = kArithmetic,
                            AttributeSchemas attributes = {}) {
  return make_elementwise_row({.name = name,
                               .schema = {.inputs = {value("a", dtypes, 'T'), value("b", dtypes, 'T')},
                                          .outputs = {value("y", dtypes)},
                                          .attributes = std::move(attributes),
                                          .in_place = 0b11},
                               .shape = shape_of_broadcast,
                               .expression = expression});
}

OperatorRow make_comparison_row(std::string_view name, std::string_view expression, DTypeSet dtypes = kArithmetic) {
  const uint32_t in_place = dtypes == kBool ? 0b11 : 0;
  return make_elementwise_row(
      {.name = name,
       .schema = {.inputs = {value("a", dtypes, 'T'), value("b", dtypes, 'T')}, .outputs = {value("y", kBool)}, .in_place = in_place},
       .shape = shape_of_predicate,
       .expression = expression});
}

OperatorRow make_variadic_row(std::string_view name, std::string_view expression, DTypeSet dtypes = kArithmetic) {
  return make_elementwise_row({.name = name,
                               .schema = {.inputs = {variadic_value("a", dtypes, 'T')}, .outputs = {value("y", dtypes)}, .in_place = 0b1},
                               .shape = shape_of_broadcast,
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
    rows.push_back(make_unary_row(name, expression, kReals)), rows.back().overflows = true;
  rows.push_back(make_unary_row("Abs", "abs(x)", kArithmetic));
  rows.push_back(make_unary_row("Sign", "sign(x)", kArithmetic));
  rows.push_back(make_unary_row("Neg", "-x", kReals | kSigned));
}

void add_activations(OperatorRows& rows) {
  rows.push_back(make_unary_row("Relu", "max(x, 0)", kReals | kSigned));
  rows.push_back(make_unary_row("LeakyRelu", "x < 0 ? alpha * x : x", kReals, {real("alpha", 0.01)}));
  rows.push_back(make_unary_row("ThresholdedRelu", "x > alpha || isnan(x) ? x : 0", kReals, {real("alpha", 1)}));
  rows.push_back(make_unary_row("Elu", "x < 0 ? alpha * expm1(x) : x", kReals, {real("alpha", 1)}));
  rows.push_back(make_unary_row("Celu", "x < 0 ? alpha * expm1(x / alpha) : x", kReals, {real("alpha", 1)}));
  // Defaults are the float32 values in the ONNX specification.
  rows.push_back(make_unary_row("Selu", "gamma * (x > 0 ? x : alpha * expm1(x))", kReals,
                                {real("alpha", 1.67326319217681884765625), real("gamma", 1.05070102214813232421875)}));
  rows.push_back(make_unary_row("HardSigmoid", "max(0, min(1, alpha * x + beta))", kReals, {real("alpha", 0.2), real("beta", 0.5)}));
  rows.push_back(make_unary_row("Gelu",
                                "approximate == 'tanh' ? 0.5 * x * (1 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x))) : x * "
                                "normal_cdf(x)",
                                kReals, {choice("approximate", "none", {"none", "tanh"})}));
  rows.push_back(make_unary_row("Swish", "x * sigmoid(alpha * x)", kReals, {real("alpha", 1)}));
  rows.push_back(
      make_unary_row("Shrink", "x < -lambd ? x + bias : x > lambd ? x - bias : 0", kReals, {real("lambd", 0.5), real("bias", 0)}));
  rows.push_back(make_elementwise_row(
      {.name = "PRelu",
       .schema = {.inputs = {value("x", kReals, 'T'), value("slope", kReals, 'T')}, .outputs = {value("y", kReals)}, .in_place = 0b1},
       .shape = shape_of_prelu,
       .expression = "x < 0 ? slope * x : x"}));
  rows.push_back(make_elementwise_row({.name = "Clip",
                                       .schema = {.inputs = {value("x", kArithmetic, 'T'), optional_value("low", kArithmetic, 'T'),
                                                             optional_value("high", kArithmetic, 'T')},
                                                  .outputs = {value("y", kArithmetic)},
                                                  .in_place = 0b1},
                                       .shape = shape_of_clip,
                                       .expression = "min(max(x, low), high)",
                                       .lower_bound_inputs = input_bits(1),
                                       .upper_bound_inputs = input_bits(2)}));
}

void add_arithmetic_operators(OperatorRows& rows) {
  rows.push_back(make_binary_row("Add", "a + b"));
  rows.push_back(make_binary_row("Sub", "a - b"));
  rows.push_back(make_binary_row("Mul", "a * b"));
  rows.push_back(make_binary_row("Div", "a / b"));
  rows.push_back(make_binary_row("pumice::FloorDivide", "floor_divide(a, b)", kIndices));  // 0 if b is 0
  rows.push_back(
      make_binary_row("pumice::RoundDivide", "(a + (a < 0 ? -(b / 2) : b / 2)) / b", kIndices));  // b > 0; rounds halves away from 0
  rows.push_back(make_binary_row("Mod", "fmod != 0 ? fmod(a, b) : mod(a, b)", kArithmetic, {integer("fmod", 0)}));
  constexpr DTypeSet bases = kFloats | kIndices;
  rows.push_back(make_elementwise_row(
      {.name = "Pow",
       .schema = {.inputs = {value("a", bases), value("b", kNumbers)}, .outputs = {value("y", bases)}, .in_place = 0b11},
       .shape = shape_of_pow,
       .expression = "pow(a, b)",
       .overflows = true}));
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
                                          {integer("detect_negative", 1), integer("detect_positive", 1)}));
  rows.push_back(make_elementwise_row(
      {.name = "Where",
       .schema = {.inputs = {value("condition", kBool), value("a", kElementwiseTypes, 'T'), value("b", kElementwiseTypes, 'T')},
                  .outputs = {value("y", kElementwiseTypes)}},
       .shape = shape_of_where,
       .expression = "condition ? a : b"}));
}

void add_bitwise_operators(OperatorRows& rows) {
  rows.push_back(make_binary_row("BitwiseAnd", "a & b", kIntegers));
  rows.push_back(make_binary_row("BitwiseOr", "a | b", kIntegers));
  rows.push_back(make_binary_row("BitwiseXor", "a ^ b", kIntegers));
  rows.push_back(make_unary_row("BitwiseNot", "~x", kIntegers));
  AttributeSchema direction = required("direction", AttributeKind::text);
  direction.choices = {"LEFT", "RIGHT"};
  rows.push_back(
      make_binary_row("BitShift", "direction == 'LEFT' ? shift_left(a, b) : shift_right(a, b)", kIntegers, {std::move(direction)}));
}

}  // namespace

void set_elementwise_properties(OperatorRow& row) {
  row.skeleton = KernelKind::map;
  row.lower = lower_elementwise;
  row.strides = StrideSupport::image;
  row.split = split_elementwise;
  row.mixed_precision = row.elementwise = true;
}

OperatorRows elementwise_operators() {
  OperatorRows rows;
  add_elementary_functions(rows);
  add_activations(rows);
  add_arithmetic_operators(rows);
  add_logical_operators(rows);
  add_bitwise_operators(rows);
  rows.push_back({.name = "Cast",
                  .skeleton = KernelKind::map,
                  .schema = {.inputs = {value("x", kCastTypes)},
                             .outputs = {value("y", kCastTypes)},
                             .attributes = {required("to", AttributeKind::integer), optional("saturate", AttributeKind::integer),
                                            optional("round_mode", AttributeKind::text)}},
                  .shape = shape_of_cast,
                  .lower = lower_cast,
                  .strides = StrideSupport::image,
                  .split = split_elementwise,
                  .evaluate = evaluate_cast,
                  .mixed_precision = true,
                  .elementwise = true,
                  .casts = true});
  rows.push_back({.name = "CastLike",
                  .skeleton = KernelKind::map,
                  .schema = {.inputs = {value("x", kCastTypes), value("like", kCastTypes)},
                             .outputs = {value("y", kCastTypes)},
                             .attributes = {optional("saturate", AttributeKind::integer), optional("round_mode", AttributeKind::text)}},
                  .shape = shape_of_cast_like,
                  .lower = lower_cast,
                  .strides = StrideSupport::image,
                  .split = split_elementwise,
                  .mixed_precision = true,
                  .elementwise = true,
                  .casts = true});
  return rows;
}

}  // namespace pumice

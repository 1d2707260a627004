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

// The slope broadcasts to x, never x to the slope.
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

using Schemas = std::vector<AttributeSchema>;

// Adds the properties common to all operators with a scalar expression.
OperatorRow elementwise(OperatorRow row) {
  declare_elementwise(row);
  row.evaluate = evaluate_elementwise;
  return row;
}

OperatorRow unary(std::string_view name, std::string_view expression, DTypeSet dtypes = kFloats, Schemas attributes = {}) {
  return elementwise(
      {.name = name,
       .schema = {.inputs = {value("x", dtypes)}, .outputs = {value("y", dtypes)}, .attributes = std::move(attributes), .in_place = 0b1},
       .shape = shape_like_input,
       .expression = expression});
}

OperatorRow float_predicate(std::string_view name, std::string_view expression, Schemas attributes = {}) {
  return elementwise({.name = name,
                      .schema = {.inputs = {value("x", kReals)}, .outputs = {value("y", kBool)}, .attributes = std::move(attributes)},
                      .shape = shape_of_predicate,
                      .expression = expression});
}

OperatorRow binary(std::string_view name, std::string_view expression, DTypeSet dtypes = kArithmetic, Schemas attributes = {}) {
  return elementwise({.name = name,
                      .schema = {.inputs = {value("a", dtypes, 'T'), value("b", dtypes, 'T')},
                                 .outputs = {value("y", dtypes)},
                                 .attributes = std::move(attributes),
                                 .in_place = 0b11},
                      .shape = shape_of_broadcast,
                      .expression = expression});
}

OperatorRow comparison(std::string_view name, std::string_view expression, DTypeSet dtypes = kArithmetic) {
  const uint32_t in_place = dtypes == kBool ? 0b11 : 0;
  return elementwise(
      {.name = name,
       .schema = {.inputs = {value("a", dtypes, 'T'), value("b", dtypes, 'T')}, .outputs = {value("y", kBool)}, .in_place = in_place},
       .shape = shape_of_predicate,
       .expression = expression});
}

OperatorRow fold(std::string_view name, std::string_view expression, DTypeSet dtypes = kArithmetic) {
  return elementwise({.name = name,
                      .schema = {.inputs = {variadic_value("a", dtypes, 'T')}, .outputs = {value("y", dtypes)}, .in_place = 0b1},
                      .shape = shape_of_broadcast,
                      .expression = expression});
}

void add_elementary(OperatorRows& rows) {
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
    rows.push_back(unary(name, expression, kReals));
  for (const auto& [name, expression] : {std::pair("Exp", "exp(x)"), std::pair("Sinh", "sinh(x)"), std::pair("Cosh", "cosh(x)")})
    rows.push_back(unary(name, expression, kReals)), rows.back().overflows = true;
  rows.push_back(unary("Abs", "abs(x)", kArithmetic));
  rows.push_back(unary("Sign", "sign(x)", kArithmetic));
  rows.push_back(unary("Neg", "-x", kReals | kSigned));
}

void add_activations(OperatorRows& rows) {
  rows.push_back(unary("Relu", "max(x, 0)", kReals | kSigned));
  rows.push_back(unary("LeakyRelu", "x < 0 ? alpha * x : x", kReals, {real("alpha", 0.01)}));
  rows.push_back(unary("ThresholdedRelu", "x > alpha || isnan(x) ? x : 0", kReals, {real("alpha", 1)}));
  rows.push_back(unary("Elu", "x < 0 ? alpha * expm1(x) : x", kReals, {real("alpha", 1)}));
  rows.push_back(unary("Celu", "x < 0 ? alpha * expm1(x / alpha) : x", kReals, {real("alpha", 1)}));
  // Defaults are the float32 values in the ONNX specification.
  rows.push_back(unary("Selu", "gamma * (x > 0 ? x : alpha * expm1(x))", kReals,
                       {real("alpha", 1.67326319217681884765625), real("gamma", 1.05070102214813232421875)}));
  rows.push_back(unary("HardSigmoid", "max(0, min(1, alpha * x + beta))", kReals, {real("alpha", 0.2), real("beta", 0.5)}));
  rows.push_back(unary("Gelu",
                       "approximate == 'tanh' ? 0.5 * x * (1 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x))) : x * "
                       "normal_cdf(x)",
                       kReals, {choice("approximate", "none", {"none", "tanh"})}));
  rows.push_back(unary("Swish", "x * sigmoid(alpha * x)", kReals, {real("alpha", 1)}));
  rows.push_back(unary("Shrink", "x < -lambd ? x + bias : x > lambd ? x - bias : 0", kReals, {real("lambd", 0.5), real("bias", 0)}));
  rows.push_back(elementwise(
      {.name = "PRelu",
       .schema = {.inputs = {value("x", kReals, 'T'), value("slope", kReals, 'T')}, .outputs = {value("y", kReals)}, .in_place = 0b1},
       .shape = shape_of_prelu,
       .expression = "x < 0 ? slope * x : x"}));
  rows.push_back(elementwise({.name = "Clip",
                              .schema = {.inputs = {value("x", kArithmetic, 'T'), optional_value("low", kArithmetic, 'T'),
                                                    optional_value("high", kArithmetic, 'T')},
                                         .outputs = {value("y", kArithmetic)},
                                         .in_place = 0b1},
                              .shape = shape_of_clip,
                              .expression = "min(max(x, low), high)",
                              .lower_bound_inputs = input_bits(1),
                              .upper_bound_inputs = input_bits(2)}));
}

void add_arithmetic(OperatorRows& rows) {
  rows.push_back(binary("Add", "a + b"));
  rows.push_back(binary("Sub", "a - b"));
  rows.push_back(binary("Mul", "a * b"));
  rows.push_back(binary("Div", "a / b"));
  rows.push_back(binary("pumice::FloorDivide", "floor_divide(a, b)", kIndices));                    // 0 if b is 0
  rows.push_back(binary("pumice::RoundDivide", "(a + (a < 0 ? -(b / 2) : b / 2)) / b", kIndices));  // b > 0; rounds halves away from 0
  rows.push_back(binary("Mod", "fmod != 0 ? fmod(a, b) : mod(a, b)", kArithmetic, {integer("fmod", 0)}));
  constexpr DTypeSet bases = kFloats | kIndices;
  rows.push_back(
      elementwise({.name = "Pow",
                   .schema = {.inputs = {value("a", bases), value("b", kNumbers)}, .outputs = {value("y", bases)}, .in_place = 0b11},
                   .shape = shape_of_pow,
                   .expression = "pow(a, b)",
                   .overflows = true}));
  rows.push_back(fold("Min", "min(a, b)"));
  rows.push_back(fold("Max", "max(a, b)"));
  rows.push_back(fold("Sum", "a + b", kReals));
  rows.push_back(fold("Mean", "a + b; y / count", kReals));
}

void add_logic(OperatorRows& rows) {
  rows.push_back(comparison("Equal", "a == b", kElementwiseTypes));
  rows.push_back(comparison("Less", "a < b"));
  rows.push_back(comparison("LessOrEqual", "a <= b"));
  rows.push_back(comparison("Greater", "a > b"));
  rows.push_back(comparison("GreaterOrEqual", "a >= b"));
  rows.push_back(comparison("And", "a && b", kBool));
  rows.push_back(comparison("Or", "a || b", kBool));
  rows.push_back(comparison("Xor", "a != b", kBool));
  rows.push_back(unary("Not", "!x", kBool));
  rows.push_back(float_predicate("IsNaN", "isnan(x)"));
  rows.push_back(float_predicate("IsInf", "isinf(x) && (x > 0 ? detect_positive != 0 : detect_negative != 0)",
                                 {integer("detect_negative", 1), integer("detect_positive", 1)}));
  rows.push_back(
      elementwise({.name = "Where",
                   .schema = {.inputs = {value("condition", kBool), value("a", kElementwiseTypes, 'T'), value("b", kElementwiseTypes, 'T')},
                              .outputs = {value("y", kElementwiseTypes)}},
                   .shape = shape_of_where,
                   .expression = "condition ? a : b"}));
}

void add_bits(OperatorRows& rows) {
  rows.push_back(binary("BitwiseAnd", "a & b", kIntegers));
  rows.push_back(binary("BitwiseOr", "a | b", kIntegers));
  rows.push_back(binary("BitwiseXor", "a ^ b", kIntegers));
  rows.push_back(unary("BitwiseNot", "~x", kIntegers));
  AttributeSchema direction = required("direction", AttributeKind::text);
  direction.choices = {"LEFT", "RIGHT"};
  rows.push_back(binary("BitShift", "direction == 'LEFT' ? shift_left(a, b) : shift_right(a, b)", kIntegers, {std::move(direction)}));
}

}  // namespace

void declare_elementwise(OperatorRow& row) {
  row.skeleton = Skeleton::map;
  row.lower = lower_elementwise;
  row.strides = StrideSupport::image;
  row.split = split_elementwise;
  row.mixed_precision = row.elementwise = true;
}

OperatorRows elementwise_operators() {
  OperatorRows rows;
  add_elementary(rows);
  add_activations(rows);
  add_arithmetic(rows);
  add_logic(rows);
  add_bits(rows);
  rows.push_back({.name = "Cast",
                  .skeleton = Skeleton::map,
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
                  .skeleton = Skeleton::map,
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

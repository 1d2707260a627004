// Elementwise NNAPI operations: arithmetic, comparisons, logic, activations, conversions.
#include <cmath>

#include "core/number_format.h"
#include "graph/nnapi/expansion.h"
#include "graph/nnapi/operations.h"

namespace pumice::nnapi {
namespace {

void add_unary_output(Expansion& e, std::string_view op) {
  e.add_real_output(e.add(op, {e.to_real(0)}), 0);
}

template <const char* op>
void expand_unary(Expansion& e) {
  add_unary_output(e, op);
}

// Adds the output of a broadcasting binary operation. Operand 2, if given, is the fused activation.
void add_binary_output(Expansion& e, std::string_view op) {
  const Activation activation = e.has(2) ? e.read_activation(2) : Activation::none;
  e.add_real_output(e.apply_activation(e.add(op, {e.to_real(0), e.to_real(1)}), activation), 0);
}

template <const char* op>
void expand_binary(Expansion& e) {
  add_binary_output(e, op);
}

template <const char* op>
void expand_logical(Expansion& e) {
  e.add_output(e.add(op, {e.to_real(0), e.to_real(1)}));
}

// Expands an ordering comparison. ONNX does not order bools, so they are cast to int32.
template <const char* op>
void expand_ordered_comparison(Expansion& e) {
  if (e.dtype(0) != DType::bool_) return expand_logical<op>(e);
  e.add_output(e.add(op, {e.cast(e[0], DType::int32), e.cast(e[1], DType::int32)}));
}

void expand_not_equal(Expansion& e) {
  e.add_output(e.add("Not", {e.add("Equal", {e.to_real(0), e.to_real(1)})}));
}

void expand_multiply(Expansion& e) {
  const Activation activation = e.read_activation(2);
  if (e.is_quantized(0)) {
    const float product_scale = e.quantization(0).scale[0] * e.quantization(1).scale[0];
    if (const Quantization y = e.declared_quantization(); !(y.scale[0] > product_scale))
      e.fail("'scale' of the output has to exceed the product of the operands' scales, " + format_general(product_scale) + "; given " +
             format_general(y.scale[0]));
  }
  e.add_real_output(e.apply_activation(e.add("Mul", {e.to_real(0), e.to_real(1)}), activation), 0);
}

void expand_divide(Expansion& e) {
  add_binary_output(e, e.dtype(0) == DType::int32 ? "pumice::FloorDivide" : "Div");
}

void check_select(Operands& o) {
  for (const size_t i : {1, 2}) {
    const auto expected = o.rank(0), actual = o.rank(i);
    bool fits = !expected || !actual || expected == actual;
    for (size_t axis = 0; fits && expected && actual && axis < *actual; ++axis) {
      const auto a = o.size(0, axis), b = o.size(i, axis);
      fits = !a || !b || a == b;
    }
    if (!fits) o.fail(i, "the shape of operand 0, " + o.format_shape(0) + ", expected; given " + o.format_shape(i));
  }
}

void expand_select(Expansion& e) {
  e.add_real_output(e.add("Where", {e[0], e.to_real(1), e.to_real(2)}), 1);
}

// Clips a tensor. A quantized tensor is clipped as integers, with unchanged quantization parameters.
void add_clip_output(Expansion& e, Activation activation) {
  const Quantization quantization = e.operand_quantization(0);
  if (e.is_quantized(0)) return e.add_output(e.apply_activation(e[0], activation, quantization), quantization);
  e.add_output(e.apply_activation(e[0], activation));
}

template <Activation activation>
void expand_clip(Expansion& e) {
  add_clip_output(e, activation);
}

// Adds the output of an operation with results in [-1, 1] or [0, 1], which are quantized to the full integer range.
void add_bounded_output(Expansion& e, std::string_view op, bool is_signed) {
  const ValueId y = e.add(op, {e.to_real(0)});
  if (!e.is_quantized(0)) return e.add_output(y);
  const int32_t middle = is_signed ? 128 : 0;
  const Quantization quantization =
      e.fixed_quantization(is_signed ? 1.0f / 128 : 1.0f / 256, e.dtype(0) == DType::int8 ? middle - 128 : middle);
  e.add_output(e.quantize(y, quantization, e.dtype(0)), quantization);
}

void expand_logistic(Expansion& e) {
  add_bounded_output(e, "Sigmoid", false);
}

void expand_tanh(Expansion& e) {
  add_bounded_output(e, "Tanh", true);
}

void expand_rsqrt(Expansion& e) {
  e.add_real_output(e.add("Reciprocal", {e.add("Sqrt", {e.to_real(0)})}), 0);
}

void expand_elu(Expansion& e) {
  e.add_output(e.add("Elu", {e[0]}, make_attrs({{"alpha", e.read_real(1)}})));
}

void expand_quantize(Expansion& e) {
  const DType dtype = e.declared_dtype().value_or(DType::uint8);
  if (!contains(kQuant, dtype))
    e.fail("'dtype' of the output: " + join_dtype_names(kQuant) + " expected; given " + std::string(name(dtype)));
  const Quantization quantization = e.declared_quantization();
  e.add_output(e.quantize(e[0], quantization, dtype), quantization);
}

void expand_dequantize(Expansion& e) {
  const DType dtype = e.declared_dtype().value_or(DType::float32);
  if (!contains(kFloat, dtype))
    e.fail("'dtype' of the output: " + join_dtype_names(kFloat) + " expected; given " + std::string(name(dtype)));
  e.add_output(e.cast(e.dequantize(e[0], e.quantization(0)), dtype));
}

// Casts between numeric dtypes without applying scales. Other dtypes, including quantized 16-bit ones, can only be cast to themselves.
void expand_cast(Expansion& e) {
  constexpr DTypeSet numbers = kFloat | kInt | make_dtype_set(DType::uint8);
  const auto declared = e.declared_dtype();
  if (!declared) e.fail("'dtype' of the output is needed");
  const DType from = e.dtype(0), to = *declared;
  if (from != to && !(contains(numbers, from) && contains(numbers, to)))
    e.fail(0, std::string(name(from)) + " cannot be cast to " + std::string(name(to)) + "; feature level 3 has casts among " +
                  join_dtype_names(numbers) + ", and feature level 4 also has casts of each type to itself");
  ValueId x = e[0];
  if (from == DType::int32 && to == DType::uint8) x = e.add("Clip", {x, e.add_scalar(0, from), e.add_scalar(255, from)});
  Quantization quantization;
  if (contains(kQuant | kQuant16, to)) quantization = from == to ? e.operand_quantization(0) : e.declared_quantization_or({{1}, 0, {}});
  e.add_output(e.cast(x, to), quantization);
}

// Operator names as template arguments.
constexpr char kAdd[] = "Add", kSub[] = "Sub", kLarger[] = "Max", kSmaller[] = "Min", kPow[] = "Pow", kPRelu[] = "PRelu", kAbs[] = "Abs",
               kNeg[] = "Neg", kExp[] = "Exp", kLog[] = "Log", kSin[] = "Sin", kSqrt[] = "Sqrt", kFloor[] = "Floor",
               kHardSwish[] = "HardSwish", kLess[] = "Less", kLessOrEqual[] = "LessOrEqual", kGreater[] = "Greater",
               kGreaterOrEqual[] = "GreaterOrEqual", kEqual[] = "Equal", kAnd[] = "And", kOr[] = "Or", kNot[] = "Not";

}  // namespace

Operations make_elementwise_operations() {
  constexpr DTypeSet reals = kFloat | kQuant, numbers = reals | kInt, all = numbers | kTruth, cast_types = all | kQuant16;
  const auto unary_operation = [](std::string_view name, int level, std::string_view summary, DTypeSet dtypes, void (*expand)(Expansion&)) {
    return Operation{name, level, summary, {tensor_arg("x", dtypes)}, {tensor_arg("y", dtypes)}, expand};
  };
  const auto binary_operation = [](std::string_view name, int level, std::string_view summary, DTypeSet dtypes,
                                   void (*expand)(Expansion&)) {
    return Operation{name, level, summary, {tensor_arg("a", dtypes, 'T'), tensor_arg("b", dtypes, 'T')}, {tensor_arg("y", dtypes)}, expand};
  };
  const auto activated_operation = [&](std::string_view name, int level, std::string_view summary, DTypeSet dtypes,
                                       void (*expand)(Expansion&)) {
    Operation operation = binary_operation(name, level, summary, dtypes, expand);
    operation.inputs.push_back(scalar_arg("activation"));
    return operation;
  };
  const auto comparison = [&](std::string_view name, std::string_view summary, void (*expand)(Expansion&)) {
    Operation operation = binary_operation(name, 3, summary, all, expand);
    operation.outputs = {tensor_arg("y", kTruth)};
    return operation;
  };
  return {
      activated_operation("nnapi::ADD", 1, "a + b, then the activation.", numbers, expand_binary<kAdd>),
      activated_operation("nnapi::SUB", 2, "a - b, then the activation.", numbers, expand_binary<kSub>),
      activated_operation("nnapi::MUL", 1, "a * b, then the activation. A quantized output's scale exceeds the product of the operands'.",
                          numbers, expand_multiply),
      activated_operation("nnapi::DIV", 2, "a / b, then the activation. Of int32 rounded down, and 0 where b is 0.", kFloat | kInt,
                          expand_divide),
      binary_operation("nnapi::MAXIMUM", 3, "The larger of a and b.", numbers, expand_binary<kLarger>),
      binary_operation("nnapi::MINIMUM", 3, "The smaller of a and b.", numbers, expand_binary<kSmaller>),
      binary_operation("nnapi::POW", 3, "a to the power of b.", kFloat, expand_binary<kPow>),
      binary_operation("nnapi::PRELU", 3, "a, times b where it is below 0.", reals, expand_binary<kPRelu>),
      unary_operation("nnapi::ABS", 3, "The absolute value.", kFloat | kInt, expand_unary<kAbs>),
      unary_operation("nnapi::NEG", 3, "-x.", kFloat | kInt, expand_unary<kNeg>),
      unary_operation("nnapi::EXP", 3, "e to the power of x.", kFloat, expand_unary<kExp>),
      unary_operation("nnapi::LOG", 3, "The natural logarithm.", kFloat, expand_unary<kLog>),
      unary_operation("nnapi::SIN", 3, "The sine of radians.", kFloat, expand_unary<kSin>),
      unary_operation("nnapi::SQRT", 3, "The square root.", kFloat, expand_unary<kSqrt>),
      unary_operation("nnapi::RSQRT", 3, "One by the square root.", reals, expand_rsqrt),
      unary_operation("nnapi::FLOOR", 1, "Rounded down.", kFloat, expand_unary<kFloor>),
      unary_operation("nnapi::RELU", 1, "At least 0.", reals, expand_clip<Activation::relu>),
      unary_operation("nnapi::RELU1", 1, "At least -1 and at most 1.", reals, expand_clip<Activation::relu1>),
      unary_operation("nnapi::RELU6", 1, "At least 0 and at most 6.", reals, expand_clip<Activation::relu6>),
      unary_operation("nnapi::LOGISTIC", 1,
                      "1 / (1 + exp(-x)). Quantized results have the scale 1/256 and the lowest integer as zero point.", reals,
                      expand_logistic),
      unary_operation("nnapi::TANH", 1,
                      "The hyperbolic tangent. Quantized results have the scale 1/128 and the middle integer as zero point.", reals,
                      expand_tanh),
      unary_operation("nnapi::HARD_SWISH", 4, "x * min(max(x + 3, 0), 6) / 6.", reals, expand_unary<kHardSwish>),
      {"nnapi::ELU",
       4,
       "x, and alpha * (exp(x) - 1) where it is below 0.",
       {tensor_arg("x", kFloat), scalar_arg("alpha", kFloat)},
       {tensor_arg("y", kFloat)},
       expand_elu},
      comparison("nnapi::EQUAL", "a == b.", expand_logical<kEqual>),
      comparison("nnapi::NOT_EQUAL", "a != b.", expand_not_equal),
      comparison("nnapi::LESS", "a < b.", expand_ordered_comparison<kLess>),
      comparison("nnapi::LESS_EQUAL", "a <= b.", expand_ordered_comparison<kLessOrEqual>),
      comparison("nnapi::GREATER", "a > b.", expand_ordered_comparison<kGreater>),
      comparison("nnapi::GREATER_EQUAL", "a >= b.", expand_ordered_comparison<kGreaterOrEqual>),
      binary_operation("nnapi::LOGICAL_AND", 3, "a and b.", kTruth, expand_logical<kAnd>),
      binary_operation("nnapi::LOGICAL_OR", 3, "a or b.", kTruth, expand_logical<kOr>),
      unary_operation("nnapi::LOGICAL_NOT", 3, "not x.", kTruth, expand_unary<kNot>),
      {"nnapi::SELECT",
       3,
       "a where the condition holds, else b; all of one shape.",
       {tensor_arg("condition", kTruth), tensor_arg("a", numbers, 'T'), tensor_arg("b", numbers, 'T')},
       {tensor_arg("y", numbers)},
       expand_select,
       {},
       check_select},
      {"nnapi::QUANTIZE",
       3,
       "Reals as the integers nearest to x / scale + zero_point: uint8, or the dtype that is given.",
       {tensor_arg("x", kFloat)},
       {tensor_arg("y", kQuant)},
       expand_quantize},
      {"nnapi::DEQUANTIZE",
       1,
       "The reals that integers stand for: float32, or the dtype that is given.",
       {{{"x", kQuant}, OperandKind::tensor, true}},
       {tensor_arg("y", kFloat)},
       expand_dequantize},
      {"nnapi::CAST",
       3,
       "The same number as the dtype that is given: truncated, and held to the range of uint8. Scales are not looked at.",
       {tensor_arg("x", cast_types)},
       {tensor_arg("y", cast_types)},
       expand_cast},
  };
}

}  // namespace pumice::nnapi

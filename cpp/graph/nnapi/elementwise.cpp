// Elementwise operations: arithmetic, comparisons, logic, activations, conversions.
#include <cmath>

#include "core/number_format.h"
#include "graph/nnapi/expansion.h"
#include "graph/nnapi/operations.h"

namespace pumice::nnapi {
namespace {

void expand_unary(Expansion& e, std::string_view op) {
  e.add_real_output(e.add(op, {e.reals(0)}), 0);
}

template <const char* op>
void unary(Expansion& e) {
  expand_unary(e, op);
}

// Expands a broadcasting binary operation; operand 2, if given, is the fused activation.
void expand_binary(Expansion& e, std::string_view op) {
  const Activation activation = e.has(2) ? e.activation(2) : Activation::none;
  e.add_real_output(e.activated(e.add(op, {e.reals(0), e.reals(1)}), activation), 0);
}

template <const char* op>
void binary(Expansion& e) {
  expand_binary(e, op);
}

template <const char* op>
void test(Expansion& e) {
  e.add_output(e.add(op, {e.reals(0), e.reals(1)}));
}

// Compares two operands. ONNX does not order bools, so they are cast to integers.
template <const char* op>
void order(Expansion& e) {
  if (e.dtype(0) != DType::bool_) return test<op>(e);
  e.add_output(e.add(op, {e.cast(e[0], DType::int32), e.cast(e[1], DType::int32)}));
}

void not_equal(Expansion& e) {
  e.add_output(e.add("Not", {e.add("Equal", {e.reals(0), e.reals(1)})}));
}

void multiply(Expansion& e) {
  const Activation activation = e.activation(2);
  if (e.is_quantized(0)) {
    const float product_scale = e.quantization(0).scale[0] * e.quantization(1).scale[0];
    if (const Quantization y = e.declared(); !(y.scale[0] > product_scale))
      e.fail("'scale' of the output has to exceed the product of the operands' scales, " + format_general(product_scale) + "; given " +
             format_general(y.scale[0]));
  }
  e.add_real_output(e.activated(e.add("Mul", {e.reals(0), e.reals(1)}), activation), 0);
}

void divide(Expansion& e) {
  expand_binary(e, e.dtype(0) == DType::int32 ? "pumice::FloorDivide" : "Div");
}

void check_select(Operands& o) {
  for (const size_t i : {1, 2}) {
    const auto expected = o.rank(0), actual = o.rank(i);
    bool fits = !expected || !actual || expected == actual;
    for (size_t axis = 0; fits && expected && actual && axis < *actual; ++axis) {
      const auto a = o.size(0, axis), b = o.size(i, axis);
      fits = !a || !b || a == b;
    }
    if (!fits) o.fail(i, "the shape of operand 0, " + o.shape_text(0) + ", expected; given " + o.shape_text(i));
  }
}

void select(Expansion& e) {
  e.add_real_output(e.add("Where", {e[0], e.reals(1), e.reals(2)}), 1);
}

// Clips a quantized tensor by clipping its integers; its quantization parameters do not change.
void expand_clip(Expansion& e, Activation activation) {
  const Quantization quantization = e.operand_quantization(0);
  if (e.is_quantized(0)) return e.add_output(e.activated(e[0], activation, quantization), quantization);
  e.add_output(e.activated(e[0], activation));
}

template <Activation activation>
void clip(Expansion& e) {
  expand_clip(e, activation);
}

// Operations with results in [-1, 1] or [0, 1], quantized to the full integer range.
void expand_bounded(Expansion& e, std::string_view op, bool is_signed) {
  const ValueId y = e.add(op, {e.reals(0)});
  if (!e.is_quantized(0)) return e.add_output(y);
  const int32_t middle = is_signed ? 128 : 0;
  const Quantization quantization =
      e.fixed_quantization(is_signed ? 1.0f / 128 : 1.0f / 256, e.dtype(0) == DType::int8 ? middle - 128 : middle);
  e.add_output(e.quantized(y, quantization, e.dtype(0)), quantization);
}

void logistic(Expansion& e) {
  expand_bounded(e, "Sigmoid", false);
}

void hyperbolic_tangent(Expansion& e) {
  expand_bounded(e, "Tanh", true);
}

void reciprocal_root(Expansion& e) {
  e.add_real_output(e.add("Reciprocal", {e.add("Sqrt", {e.reals(0)})}), 0);
}

void exponential_linear(Expansion& e) {
  e.add_output(e.add("Elu", {e[0]}, with({{"alpha", e.real(1)}})));
}

void quantize(Expansion& e) {
  const DType dtype = e.declared_dtype().value_or(DType::uint8);
  if (!contains(kQuant, dtype)) e.fail("'dtype' of the output: " + names(kQuant) + " expected; given " + std::string(name(dtype)));
  const Quantization quantization = e.declared();
  e.add_output(e.quantized(e[0], quantization, dtype), quantization);
}

void dequantize(Expansion& e) {
  const DType dtype = e.declared_dtype().value_or(DType::float32);
  if (!contains(kFloat, dtype)) e.fail("'dtype' of the output: " + names(kFloat) + " expected; given " + std::string(name(dtype)));
  e.add_output(e.cast(e.dequantized(e[0], e.quantization(0)), dtype));
}

// Casts between numeric types, ignoring scales; other types, including quantized 16-bit ones, can only be cast to themselves.
void cast(Expansion& e) {
  constexpr DTypeSet numbers = kFloat | kInt | set_of(DType::uint8);
  const auto declared = e.declared_dtype();
  if (!declared) e.fail("'dtype' of the output is needed");
  const DType from = e.dtype(0), to = *declared;
  if (from != to && !(contains(numbers, from) && contains(numbers, to)))
    e.fail(0, std::string(name(from)) + " becomes no " + std::string(name(to)) + "; feature level 3 has casts among " + names(numbers) +
                  ", and feature level 4 those of each type to itself");
  ValueId x = e[0];
  if (from == DType::int32 && to == DType::uint8) x = e.add("Clip", {x, e.scalar(0, from), e.scalar(255, from)});
  Quantization quantization;
  if (contains(kQuant | kQuant16, to)) quantization = from == to ? e.operand_quantization(0) : e.declared_or({{1}, 0, {}});
  e.add_output(e.cast(x, to), quantization);
}

// Operator names as template arguments.
constexpr char kAdd[] = "Add", kSub[] = "Sub", kLarger[] = "Max", kSmaller[] = "Min", kPow[] = "Pow", kPRelu[] = "PRelu", kAbs[] = "Abs",
               kNeg[] = "Neg", kExp[] = "Exp", kLog[] = "Log", kSin[] = "Sin", kSqrt[] = "Sqrt", kFloor[] = "Floor",
               kHardSwish[] = "HardSwish", kLess[] = "Less", kLessOrEqual[] = "LessOrEqual", kGreater[] = "Greater",
               kGreaterOrEqual[] = "GreaterOrEqual", kEqual[] = "Equal", kAnd[] = "And", kOr[] = "Or", kNot[] = "Not";

}  // namespace

Operations elementwise_operations() {
  constexpr DTypeSet reals = kFloat | kQuant, numbers = reals | kInt, all = numbers | kTruth, cast_types = all | kQuant16;
  const auto one = [](std::string_view name, int level, std::string_view summary, DTypeSet dtypes, void (*expand)(Expansion&)) {
    return Operation{name, level, summary, {tensor("x", dtypes)}, {tensor("y", dtypes)}, expand};
  };
  const auto two = [](std::string_view name, int level, std::string_view summary, DTypeSet dtypes, void (*expand)(Expansion&)) {
    return Operation{name, level, summary, {tensor("a", dtypes, 'T'), tensor("b", dtypes, 'T')}, {tensor("y", dtypes)}, expand};
  };
  const auto fused = [&](std::string_view name, int level, std::string_view summary, DTypeSet dtypes, void (*expand)(Expansion&)) {
    Operation operation = two(name, level, summary, dtypes, expand);
    operation.inputs.push_back(scalar("activation"));
    return operation;
  };
  const auto compared = [&](std::string_view name, std::string_view summary, void (*expand)(Expansion&)) {
    Operation operation = two(name, 3, summary, all, expand);
    operation.outputs = {tensor("y", kTruth)};
    return operation;
  };
  return {
      fused("nnapi::ADD", 1, "a + b, then the activation.", numbers, binary<kAdd>),
      fused("nnapi::SUB", 2, "a - b, then the activation.", numbers, binary<kSub>),
      fused("nnapi::MUL", 1, "a * b, then the activation. A quantized output's scale exceeds the product of the operands'.", numbers,
            multiply),
      fused("nnapi::DIV", 2, "a / b, then the activation. Of int32 rounded down, and 0 where b is 0.", kFloat | kInt, divide),
      two("nnapi::MAXIMUM", 3, "The larger of a and b.", numbers, binary<kLarger>),
      two("nnapi::MINIMUM", 3, "The smaller of a and b.", numbers, binary<kSmaller>),
      two("nnapi::POW", 3, "a to the power of b.", kFloat, binary<kPow>),
      two("nnapi::PRELU", 3, "a, times b where it is below 0.", reals, binary<kPRelu>),
      one("nnapi::ABS", 3, "The absolute value.", kFloat | kInt, unary<kAbs>),
      one("nnapi::NEG", 3, "-x.", kFloat | kInt, unary<kNeg>),
      one("nnapi::EXP", 3, "e to the power of x.", kFloat, unary<kExp>),
      one("nnapi::LOG", 3, "The natural logarithm.", kFloat, unary<kLog>),
      one("nnapi::SIN", 3, "The sine of radians.", kFloat, unary<kSin>),
      one("nnapi::SQRT", 3, "The square root.", kFloat, unary<kSqrt>),
      one("nnapi::RSQRT", 3, "One by the square root.", reals, reciprocal_root),
      one("nnapi::FLOOR", 1, "Rounded down.", kFloat, unary<kFloor>),
      one("nnapi::RELU", 1, "At least 0.", reals, clip<Activation::relu>),
      one("nnapi::RELU1", 1, "At least -1 and at most 1.", reals, clip<Activation::relu1>),
      one("nnapi::RELU6", 1, "At least 0 and at most 6.", reals, clip<Activation::relu6>),
      one("nnapi::LOGISTIC", 1, "1 / (1 + exp(-x)). Quantized results have the scale 1/256 and the lowest integer as zero point.", reals,
          logistic),
      one("nnapi::TANH", 1, "The hyperbolic tangent. Quantized results have the scale 1/128 and the middle integer as zero point.", reals,
          hyperbolic_tangent),
      one("nnapi::HARD_SWISH", 4, "x * min(max(x + 3, 0), 6) / 6.", reals, unary<kHardSwish>),
      {"nnapi::ELU",
       4,
       "x, and alpha * (exp(x) - 1) where it is below 0.",
       {tensor("x", kFloat), scalar("alpha", kFloat)},
       {tensor("y", kFloat)},
       exponential_linear},
      compared("nnapi::EQUAL", "a == b.", test<kEqual>),
      compared("nnapi::NOT_EQUAL", "a != b.", not_equal),
      compared("nnapi::LESS", "a < b.", order<kLess>),
      compared("nnapi::LESS_EQUAL", "a <= b.", order<kLessOrEqual>),
      compared("nnapi::GREATER", "a > b.", order<kGreater>),
      compared("nnapi::GREATER_EQUAL", "a >= b.", order<kGreaterOrEqual>),
      two("nnapi::LOGICAL_AND", 3, "a and b.", kTruth, test<kAnd>),
      two("nnapi::LOGICAL_OR", 3, "a or b.", kTruth, test<kOr>),
      one("nnapi::LOGICAL_NOT", 3, "not x.", kTruth, unary<kNot>),
      {"nnapi::SELECT",
       3,
       "a where the condition holds, else b; all of one shape.",
       {tensor("condition", kTruth), tensor("a", numbers, 'T'), tensor("b", numbers, 'T')},
       {tensor("y", numbers)},
       select,
       {},
       check_select},
      {"nnapi::QUANTIZE",
       3,
       "Reals as the integers nearest to x / scale + zero_point: uint8, or the dtype that is given.",
       {tensor("x", kFloat)},
       {tensor("y", kQuant)},
       quantize},
      {"nnapi::DEQUANTIZE",
       1,
       "The reals that integers stand for: float32, or the dtype that is given.",
       {{{"x", kQuant}, OperandKind::tensor, true}},
       {tensor("y", kFloat)},
       dequantize},
      {"nnapi::CAST",
       3,
       "The same number as the dtype that is given: truncated, and held to the range of uint8. Scales are not looked at.",
       {tensor("x", cast_types)},
       {tensor("y", cast_types)},
       cast},
  };
}

}  // namespace pumice::nnapi

#include "operators/compiled/ufunc.h"

#include <algorithm>
#include <array>
#include <string>

#include "core/error.h"
#include "operators/compiled/convert_tensor.h"
#include "operators/compiled/eager.h"

namespace pumice {
namespace {

// The loops of a NumPy ufunc: expressions of "a", or of "a" and "b", for bool, signed, unsigned and float types. A loop that NumPy does not
// have is empty.
struct UfuncLoops {
  std::string_view name;
  std::string_view boolean, signed_, unsigned_, real;
};

constexpr std::array kUfuncLoops{
    UfuncLoops{"add", "a || b", "a + b", "a + b", "a + b"},
    UfuncLoops{"subtract", "", "a - b", "a - b", "a - b"},
    UfuncLoops{"multiply", "a && b", "a * b", "a * b", "a * b"},
    UfuncLoops{"divide", "", "", "", "a / b"},
    UfuncLoops{"floor_divide", "", "floor_divide(a, b)", "floor_divide(a, b)", "floor_divide(a, b)"},
    // In GLSL the remainder by 0, and of the smallest integer by -1, is undefined.
    UfuncLoops{"remainder", "", "b == 0 || b == -1 ? 0 : mod(a, b == 0 || b == -1 ? 1 : b)", "b == 0 ? 0 : mod(a, b == 0 ? 1 : b)",
               "mod(a, b)"},
    UfuncLoops{"power", "", "pow(a, b)", "pow(a, b)", "pow(a, b)"},
    UfuncLoops{"bitwise_and", "a && b", "a & b", "a & b", ""},
    UfuncLoops{"bitwise_or", "a || b", "a | b", "a | b", ""},
    UfuncLoops{"bitwise_xor", "a != b", "a ^ b", "a ^ b", ""},
    UfuncLoops{"left_shift", "", "shift_left(a, b)", "shift_left(a, b)", ""},
    UfuncLoops{"right_shift", "", "shift_right(a, b)", "shift_right(a, b)", ""},
    UfuncLoops{"equal", "a == b", "a == b", "a == b", "a == b"},
    UfuncLoops{"not_equal", "a != b", "a != b", "a != b", "a != b"},
    UfuncLoops{"less", "!a && b", "a < b", "a < b", "a < b"},
    UfuncLoops{"less_equal", "!a || b", "a <= b", "a <= b", "a <= b"},
    UfuncLoops{"greater", "a && !b", "a > b", "a > b", "a > b"},
    UfuncLoops{"greater_equal", "a || !b", "a >= b", "a >= b", "a >= b"},
    UfuncLoops{"negative", "", "-a", "-a", "-a"},
    UfuncLoops{"positive", "", "a", "a", "a"},
    UfuncLoops{"absolute", "a", "abs(a)", "a", "abs(a)"},
    UfuncLoops{"invert", "!a", "~a", "~a", ""},
    UfuncLoops{"sqrt", "", "", "", "sqrt(a)"},
    UfuncLoops{"reciprocal", "", "", "", "1 / a"},
};

// Comparisons of int64 with uint64, which have no common type: a negative number is less than any uint64.
struct MixedSignComparison {
  std::string_view name, signed_first, unsigned_first;
};

constexpr std::array kMixedSignComparisons{
    MixedSignComparison{"equal", "a >= 0 && u64(a) == b", "b >= 0 && a == u64(b)"},
    MixedSignComparison{"not_equal", "a < 0 || u64(a) != b", "b < 0 || a != u64(b)"},
    MixedSignComparison{"less", "a < 0 || u64(a) < b", "b >= 0 && a < u64(b)"},
    MixedSignComparison{"less_equal", "a < 0 || u64(a) <= b", "b >= 0 && a <= u64(b)"},
    MixedSignComparison{"greater", "a >= 0 && u64(a) > b", "b < 0 || a > u64(b)"},
    MixedSignComparison{"greater_equal", "a >= 0 && u64(a) >= b", "b < 0 || a >= u64(b)"},
};

std::string_view select_loop(const UfuncLoops& loops, DType type) {
  if (type == DType::bool_) return loops.boolean;
  if (is_float(type)) return loops.real;
  return is_signed_integer(type) ? loops.signed_ : loops.unsigned_;
}

std::string_view find_loop(std::string_view operation, const std::vector<DType>& types) {
  if (types.size() == 2 && types[0] != types[1]) {
    const auto mixed = std::ranges::find(kMixedSignComparisons, operation, &MixedSignComparison::name);
    const bool is_mixed = mixed != kMixedSignComparisons.end() && std::ranges::count(types, DType::int64) == 1 &&
                          std::ranges::count(types, DType::uint64) == 1;
    return !is_mixed ? std::string_view() : types[0] == DType::int64 ? mixed->signed_first : mixed->unsigned_first;
  }
  const auto loops = std::ranges::find(kUfuncLoops, operation, &UfuncLoops::name);
  return loops == kUfuncLoops.end() || is_low_bit(types[0]) ? std::string_view() : select_loop(*loops, types[0]);
}

std::string_view require_loop(std::string_view operation, const std::vector<DType>& types) {
  const std::string_view expression = find_loop(operation, types);
  if (!expression.empty()) return expression;
  std::string type_names;
  for (const DType type : types) type_names += (type_names.empty() ? "" : " and ") + std::string(name(type));
  throw UnsupportedError("elementwise '" + std::string(operation) + "' of " + type_names);
}

// Returns an expression that casts the operand named `parameter` to the computation type `type`.
Expression make_operand_cast(const std::string& parameter, DType operand_type, DType type) {
  constexpr std::string_view casts[] = {"bool", "i32", "u32", "i64", "u64", "f32", "f64"};
  if (to_expr_type(operand_type) == to_expr_type(type)) return Expression::name(parameter);
  return Expression::parse(std::string(casts[static_cast<size_t>(to_expr_type(type))]) + "(" + parameter + ")");
}

// Whether a computation in fp32 may use the operand's exact value although the loop has a 16-bit float type. Otherwise the operand is first
// rounded to that type.
bool computes_exactly(DType operand_type, DType type) {
  return !is_16bit_float(type) || operand_type == type || bits(operand_type) <= 8;
}

// Reduces all elements, converted to bool, by ReduceMin (all) or ReduceMax (any).
bool reduce_to_bool(std::string_view op, const Tensor& tensor, const InterruptCallback& interrupted) {
  const Tensor truth =
      ensure_aligned(tensor.desc().dtype == DType::bool_ ? tensor : convert_dtype(tensor, DType::bool_, interrupted), interrupted);
  const Tensor bytes = truth.reinterpret(DType::uint8), result = Tensor::empty(tensor.buffer()->context(), DType::uint8, {});
  Attributes attributes;
  attributes.set("keepdims", int64_t{0});
  run_eagerly(std::string(op), [&] { return Operator(op, {bytes.desc()}, {result.desc()}, attributes); }, {bytes}, result, interrupted);
  std::byte value{};
  result.download({&value, 1}, interrupted);
  return value != std::byte{0};
}

}  // namespace

Tensor run_ufunc(std::string_view operation, const std::vector<Tensor>& operands, const std::vector<DType>& types, DType result,
                 const InterruptCallback& interrupted) {
  const std::string_view expression = require_loop(operation, types);
  std::vector<Tensor> inputs;
  std::vector<TensorDesc> descs;
  std::map<std::string, Expression> substitutions;
  std::string key = "elementwise " + std::string(expression);
  Shape shape = operands.at(0).desc().shape;
  for (size_t i = 0; i < operands.size(); ++i) {
    Tensor operand = operands[i];
    if (operand.buffer()->context() != operands[0].buffer()->context())
      throw BindingError("M3", "operand", "", "a tensor of this context", "one of another");
    shape = i == 0 ? shape : broadcast_shape(shape, operand.desc().shape);
    if (!computes_exactly(operand.desc().dtype, types[i])) operand = convert_dtype(operand, types[i], interrupted);
    substitutions.emplace(i == 0 ? "a" : "b", make_operand_cast("in" + std::to_string(i), operand.desc().dtype, types[i]));
    key += " " + std::string(name(types[i]));
    descs.push_back(operand.desc());
    inputs.push_back(operand);
  }
  const Tensor output = Tensor::empty(operands[0].buffer()->context(), result, std::move(shape));
  const auto make_operator = [&] { return Operator(Expression::parse(expression).substitute(substitutions), descs, output.desc()); };
  if (output.desc().elements() == 0) return output;
  for (Tensor& operand : inputs) operand = ensure_aligned(operand, interrupted);
  run_eagerly(key, make_operator, inputs, output, interrupted);
  return output;
}

bool any_nonzero(const Tensor& tensor, const InterruptCallback& interrupted) {
  return tensor.desc().elements() > 0 && reduce_to_bool("ReduceMax", tensor, interrupted);
}

bool all_nonzero(const Tensor& tensor, const InterruptCallback& interrupted) {
  return tensor.desc().elements() == 0 || reduce_to_bool("ReduceMin", tensor, interrupted);
}

}  // namespace pumice

#include "operators/compiled/ufunc.h"

#include <algorithm>
#include <array>
#include <string>

#include "core/error.h"
#include "operators/compiled/convert.h"
#include "operators/compiled/immediate.h"

namespace pumice {
namespace {

// Expressions over "a", or "a" and "b", for each kind of type; empty if NumPy has no such loop.
struct Loops {
  std::string_view name;
  std::string_view boolean, signed_, unsigned_, real;
};

constexpr std::array kLoops{
    Loops{"add", "a || b", "a + b", "a + b", "a + b"},
    Loops{"subtract", "", "a - b", "a - b", "a - b"},
    Loops{"multiply", "a && b", "a * b", "a * b", "a * b"},
    Loops{"divide", "", "", "", "a / b"},
    Loops{"floor_divide", "", "floor_divide(a, b)", "floor_divide(a, b)", "floor_divide(a, b)"},
    // In GLSL the remainder by 0, and of the smallest integer by -1, is undefined.
    Loops{"remainder", "", "b == 0 || b == -1 ? 0 : mod(a, b == 0 || b == -1 ? 1 : b)", "b == 0 ? 0 : mod(a, b == 0 ? 1 : b)", "mod(a, b)"},
    Loops{"power", "", "pow(a, b)", "pow(a, b)", "pow(a, b)"},
    Loops{"bitwise_and", "a && b", "a & b", "a & b", ""},
    Loops{"bitwise_or", "a || b", "a | b", "a | b", ""},
    Loops{"bitwise_xor", "a != b", "a ^ b", "a ^ b", ""},
    Loops{"left_shift", "", "shift_left(a, b)", "shift_left(a, b)", ""},
    Loops{"right_shift", "", "shift_right(a, b)", "shift_right(a, b)", ""},
    Loops{"equal", "a == b", "a == b", "a == b", "a == b"},
    Loops{"not_equal", "a != b", "a != b", "a != b", "a != b"},
    Loops{"less", "!a && b", "a < b", "a < b", "a < b"},
    Loops{"less_equal", "!a || b", "a <= b", "a <= b", "a <= b"},
    Loops{"greater", "a && !b", "a > b", "a > b", "a > b"},
    Loops{"greater_equal", "a || !b", "a >= b", "a >= b", "a >= b"},
    Loops{"negative", "", "-a", "-a", "-a"},
    Loops{"positive", "", "a", "a", "a"},
    Loops{"absolute", "a", "abs(a)", "a", "abs(a)"},
    Loops{"invert", "!a", "~a", "~a", ""},
    Loops{"sqrt", "", "", "", "sqrt(a)"},
    Loops{"reciprocal", "", "", "", "1 / a"},
};

// Comparisons of int64 with uint64, which have no common type: a negative number is less than any uint64.
struct MixedComparison {
  std::string_view name, signed_first, unsigned_first;
};

constexpr std::array kMixed{
    MixedComparison{"equal", "a >= 0 && u64(a) == b", "b >= 0 && a == u64(b)"},
    MixedComparison{"not_equal", "a < 0 || u64(a) != b", "b < 0 || a != u64(b)"},
    MixedComparison{"less", "a < 0 || u64(a) < b", "b >= 0 && a < u64(b)"},
    MixedComparison{"less_equal", "a < 0 || u64(a) <= b", "b >= 0 && a <= u64(b)"},
    MixedComparison{"greater", "a >= 0 && u64(a) > b", "b < 0 || a > u64(b)"},
    MixedComparison{"greater_equal", "a >= 0 && u64(a) >= b", "b < 0 || a >= u64(b)"},
};

std::string_view text_of(const Loops& loops, DType type) {
  if (type == DType::bool_) return loops.boolean;
  if (is_float(type)) return loops.real;
  return is_signed_integer(type) ? loops.signed_ : loops.unsigned_;
}

std::string_view find_text(std::string_view operation, const std::vector<DType>& types) {
  if (types.size() == 2 && types[0] != types[1]) {
    const auto mixed = std::ranges::find(kMixed, operation, &MixedComparison::name);
    const bool is_mixed =
        mixed != kMixed.end() && std::ranges::count(types, DType::int64) == 1 && std::ranges::count(types, DType::uint64) == 1;
    return !is_mixed ? std::string_view() : types[0] == DType::int64 ? mixed->signed_first : mixed->unsigned_first;
  }
  const auto loops = std::ranges::find(kLoops, operation, &Loops::name);
  return loops == kLoops.end() || is_narrow(types[0]) ? std::string_view() : text_of(*loops, types[0]);
}

std::string_view loop_text(std::string_view operation, const std::vector<DType>& types) {
  const std::string_view text = find_text(operation, types);
  if (!text.empty()) return text;
  std::string given;
  for (const DType type : types) given += (given.empty() ? "" : " and ") + std::string(name(type));
  throw UnsupportedError("elementwise '" + std::string(operation) + "' of " + given);
}

// Returns an operand, by its name in the kernel, cast to the computation type.
Expression operand_as(const std::string& called, DType given, DType type) {
  constexpr std::string_view casts[] = {"bool", "i32", "u32", "i64", "u64", "f32", "f64"};
  if (expr_type(given) == expr_type(type)) return Expression::name(called);
  return Expression::parse(std::string(casts[static_cast<size_t>(expr_type(type))]) + "(" + called + ")");
}

// Whether an fp32 computation for a 16-bit float type uses the operand's exact value. If not, the operand is rounded first.
bool is_exact(DType given, DType type) {
  return !is_half_width(type) || given == type || bits(given) <= 8;
}

// Returns the minimum or maximum over the elements as bool.
bool reduced(std::string_view op, const Tensor& tensor, const Interrupted& interrupted) {
  const Tensor truth = aligned(tensor.desc().dtype == DType::bool_ ? tensor : converted(tensor, DType::bool_, interrupted), interrupted);
  const Tensor bytes = truth.reinterpret(DType::uint8), result = Tensor::empty(tensor.buffer()->context(), DType::uint8, {});
  Attributes attributes;
  attributes.set("keepdims", int64_t{0});
  run_at_once(std::string(op), [&] { return Operator(op, {bytes.desc()}, {result.desc()}, attributes); }, {bytes}, result, interrupted);
  std::byte value{};
  result.download({&value, 1}, interrupted);
  return value != std::byte{0};
}

}  // namespace

Tensor elementwise(std::string_view operation, const std::vector<Tensor>& operands, const std::vector<DType>& types, DType result,
                   const Interrupted& interrupted) {
  const std::string_view text = loop_text(operation, types);
  std::vector<Tensor> read;
  std::vector<TensorDesc> descs;
  std::map<std::string, Expression> named;
  std::string key = "elementwise " + std::string(text);
  Shape shape = operands.at(0).desc().shape;
  for (size_t i = 0; i < operands.size(); ++i) {
    Tensor operand = operands[i];
    if (operand.buffer()->context() != operands[0].buffer()->context())
      throw BindingError("M3", "operand", "", "a tensor of this context", "one of another");
    shape = i == 0 ? shape : broadcast_shape(shape, operand.desc().shape);
    if (!is_exact(operand.desc().dtype, types[i])) operand = converted(operand, types[i], interrupted);
    named.emplace(i == 0 ? "a" : "b", operand_as("in" + std::to_string(i), operand.desc().dtype, types[i]));
    key += " " + std::string(name(types[i]));
    descs.push_back(operand.desc());
    read.push_back(operand);
  }
  const Tensor made = Tensor::empty(operands[0].buffer()->context(), result, std::move(shape));
  const auto describe = [&] { return Operator(Expression::parse(text).substitute(named), descs, made.desc()); };
  if (made.desc().elements() == 0) return made;
  for (Tensor& operand : read) operand = aligned(operand, interrupted);
  run_at_once(key, describe, read, made, interrupted);
  return made;
}

bool any_nonzero(const Tensor& tensor, const Interrupted& interrupted) {
  return tensor.desc().elements() > 0 && reduced("ReduceMax", tensor, interrupted);
}

bool all_nonzero(const Tensor& tensor, const Interrupted& interrupted) {
  return tensor.desc().elements() == 0 || reduced("ReduceMin", tensor, interrupted);
}

}  // namespace pumice

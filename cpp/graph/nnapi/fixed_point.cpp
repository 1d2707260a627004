#include "graph/nnapi/fixed_point.h"

#include <algorithm>
#include <cmath>

namespace pumice::nnapi {
namespace {

constexpr int32_t kMinInt16 = -32768, kMaxInt16 = 32767;

int32_t clamp_int16(int64_t x) {
  return static_cast<int32_t>(std::clamp<int64_t>(x, kMinInt16, kMaxInt16));
}

// Divides by 2^shift and rounds half away from zero (gemmlowp RoundingDivideByPOT).
int32_t rounding_divide_by_pot(int32_t x, int shift) {
  const int32_t mask = (1 << shift) - 1, rest = x & mask, half = (mask >> 1) + (x < 0 ? 1 : 0);
  return (x >> shift) + (rest > half ? 1 : 0);
}

int32_t saturating_rounding_mul(int32_t a, int32_t b) {
  if (a == kMinInt16 && b == kMinInt16) return kMaxInt16;
  const int32_t exact = a * b;
  return (exact + (exact >= 0 ? 1 << 14 : 1 - (1 << 14))) / (1 << 15);
}

int32_t shift_left(int32_t x, int by) {
  return by >= 0 ? clamp_int16(int64_t{x} * (int64_t{1} << by)) : rounding_divide_by_pot(x, -by);
}

// Returns exp of a number in [-1/4, 0) with 0 integer bits: Taylor series around -1/8 up to the fourth power.
int32_t exp_near_zero(int32_t a) {
  constexpr int32_t kEighth = 4096, kThird = 10923, kExpOfEighth = 28918;
  const int32_t x = a + kEighth, x2 = saturating_rounding_mul(x, x), x3 = saturating_rounding_mul(x2, x),
                x4 = saturating_rounding_mul(x2, x2);
  const int32_t rest = rounding_divide_by_pot(saturating_rounding_mul(clamp_int16(rounding_divide_by_pot(x4, 2) + x3), kThird) + x2, 1);
  return clamp_int16(kExpOfEighth + saturating_rounding_mul(kExpOfEighth, clamp_int16(x + rest)));
}

// Returns exp of a non-positive number: exp of the remainder modulo 1/4, times exp of each power of two in the rest.
int32_t exp_nonpositive(int32_t a, int integer_bits) {
  constexpr int32_t kFactors[] = {25520, 19875, 12055, 4435, 600, 11, 0};  // exp(-1/4), exp(-1/2), ... exp(-16)
  if (a == 0) return kMaxInt16;
  const int fraction = 15 - integer_bits;
  const int32_t quarter = 1 << (fraction - 2), near = (a & (quarter - 1)) - quarter, rest = near - a;
  int32_t result = exp_near_zero(shift_left(near, integer_bits));
  for (int j = -2; j <= 4; ++j)
    if (integer_bits > j && ((rest >> (fraction + j)) & 1) != 0) result = saturating_rounding_mul(result, kFactors[j + 2]);
  return integer_bits > 5 && a < -(32 << fraction) ? 0 : result;
}

// Returns 2 / (1 + a) with two integer bits, for a in [0, 1], by three Newton-Raphson steps.
int32_t two_over_one_plus_x(int32_t a) {
  const int32_t sum = a + kMaxInt16, half = (sum + (sum >= 0 ? 1 : -1)) / 2;
  int32_t x = clamp_int16(23130 + saturating_rounding_mul(half, -15420));
  for (int step = 0; step < 3; ++step)
    x = clamp_int16(x + shift_left(saturating_rounding_mul(x, clamp_int16(8192 - saturating_rounding_mul(half, x))), 2));
  return x;
}

int32_t tanh_fixed(int32_t a, int integer_bits) {
  if (a == 0) return 0;
  const int32_t below = a == kMinInt16 ? kMinInt16 : -std::abs(a);
  const int32_t t = shift_left(clamp_int16(two_over_one_plus_x(exp_nonpositive(below, integer_bits + 1)) - 8192), 2);
  return a > 0 ? t : clamp_int16(-t);
}

int32_t logistic_fixed(int32_t a, int integer_bits) {
  if (a == 0) return 16384;
  const int32_t below = a == kMinInt16 ? kMinInt16 : -std::abs(a);
  const int32_t p = shift_left(two_over_one_plus_x(exp_nonpositive(below, integer_bits)), 1);
  return a > 0 ? p : kMaxInt16 - p;
}

std::vector<double> tabulate_int16_function(int integer_bits, int32_t (*function)(int32_t, int)) {
  std::vector<double> table;
  for (int32_t a = kMinInt16; a <= kMaxInt16; ++a) table.push_back(function(a, integer_bits));
  return table;
}

}  // namespace

FixedPointMultiplier make_multiplier(double factor) {
  if (factor == 0) return {0, 0};
  int exponent = 0;
  const double fraction = std::frexp(factor, &exponent);
  auto mantissa = static_cast<int64_t>(std::round(fraction * 2147483648.0));
  if (mantissa == int64_t{1} << 31) mantissa /= 2, ++exponent;
  if (exponent < -31) return {0, 0};
  return {static_cast<int32_t>(mantissa), exponent};
}

std::vector<double> make_tanh_table(int integer_bits) {
  return tabulate_int16_function(integer_bits, tanh_fixed);
}

std::vector<double> make_logistic_table(int integer_bits) {
  return tabulate_int16_function(integer_bits, logistic_fixed);
}

ValueId FixedPointNodeBuilder::clamp_to(ValueId id, double min_value, double max_value) {
  const DType dtype = e_.value_of(id).dtype;
  return e_.add("Clip", {id, constant(min_value, dtype), constant(max_value, dtype)});
}

ValueId FixedPointNodeBuilder::divide_rounding_up(ValueId id, int shift) {
  const DType dtype = e_.value_of(id).dtype;
  return e_.add("pumice::FloorDivide", {add(id, constant(std::ldexp(1.0, shift - 1), dtype)), constant(std::ldexp(1.0, shift), dtype)});
}

ValueId FixedPointNodeBuilder::divide_by_pot(ValueId id, int shift) {
  return shift == 0 ? id : e_.add("pumice::RoundDivide", {id, constant(std::ldexp(1.0, shift), e_.value_of(id).dtype)});
}

ValueId FixedPointNodeBuilder::saturating_mul(ValueId a, ValueId b) {
  return e_.add("Min", {divide_rounding_up(e_.add("Mul", {a, b}), 15), constant(kMaxInt16, DType::int32)});
}

ValueId FixedPointNodeBuilder::apply_multiplier(ValueId id, const FixedPointMultiplier& multiplier) {
  ValueId as_int64 = e_.cast(id, DType::int64);
  if (multiplier.exponent > 0) as_int64 = e_.add("Mul", {as_int64, constant(std::ldexp(1.0, multiplier.exponent), DType::int64)});
  const ValueId exact = e_.add("Mul", {as_int64, constant(multiplier.mantissa, DType::int64)});
  return divide_by_pot(divide_rounding_up(exact, 31), std::max(-multiplier.exponent, 0));
}

ValueId FixedPointNodeBuilder::repeat_each(const std::vector<double>& numbers, const AxisLength& size, DType dtype) {
  std::vector<ValueId> parts;
  for (const double factor_value : numbers) parts.push_back(e_.add("Expand", {constant(factor_value, dtype), e_.add_sizes({size})}));
  return e_.add("Concat", parts, make_attrs({{"axis", int64_t{0}}}));
}

ValueId FixedPointNodeBuilder::scale_gates(ValueId id, const std::vector<FixedPointMultiplier>& multipliers, const AxisLength& units) {
  std::vector<double> ups, mantissas, divisors;
  for (const FixedPointMultiplier& factor_value : multipliers) {
    ups.push_back(std::ldexp(1.0, std::max(factor_value.exponent, 0)));
    mantissas.push_back(factor_value.mantissa);
    divisors.push_back(std::ldexp(1.0, std::max(-factor_value.exponent, 0)));
  }
  const auto each = [&](const std::vector<double>& numbers) { return repeat_each(numbers, units, DType::int64); };
  const ValueId exact = e_.add("Mul", {e_.add("Mul", {e_.cast(id, DType::int64), each(ups)}), each(mantissas)});
  return e_.add("pumice::RoundDivide", {divide_rounding_up(exact, 31), each(divisors)});
}

ValueId FixedPointNodeBuilder::apply_gate_functions(ValueId id, int integer_bits, size_t count, size_t candidate, const AxisLength& units) {
  std::vector<double> table = make_logistic_table(integer_bits);
  const auto size = static_cast<double>(table.size());
  const std::vector<double> tanh = make_tanh_table(integer_bits);
  table.insert(table.end(), tanh.begin(), tanh.end());
  std::vector<double> table_offsets(count, -kMinInt16);
  table_offsets[candidate] += size;
  const ValueId index = add(id, repeat_each(table_offsets, units, DType::int32));
  return e_.add("Gather", {e_.add_vector(table, DType::int32), index}, make_attrs({{"axis", int64_t{0}}}));
}

// Looks up int16 indices. The table is rotated, because negative indices count from its end.
ValueId FixedPointNodeBuilder::look_up_table(const std::vector<double>& table, ValueId id) {
  std::vector<double> rotated = table;
  std::ranges::rotate(rotated, rotated.begin() - kMinInt16);
  return e_.add("Gather", {e_.add_vector(rotated, DType::int32), id}, make_attrs({{"axis", int64_t{0}}}));
}

}  // namespace pumice::nnapi

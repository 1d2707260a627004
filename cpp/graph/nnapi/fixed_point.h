// Fixed-point arithmetic with 16 and 32 bits: on the host for function tables, and as graph nodes. An int16 with k integer bits represents
// its integer value times 2^(k - 15).
#pragma once

#include <cstdint>

#include "graph/nnapi/expansion.h"

namespace pumice::nnapi {

// A quantized multiplier: mantissa / 2^31 * 2^exponent.
struct FixedPointMultiplier {
  int32_t mantissa;
  int exponent;
};
FixedPointMultiplier make_multiplier(double factor);

// Return the values of a function for all int16 arguments from -32768 up. Arguments have `integer_bits` integer bits, results none.
std::vector<double> make_tanh_table(int integer_bits);
std::vector<double> make_logistic_table(int integer_bits);

// Adds fixed-point arithmetic nodes on int32 and int64 values.
class FixedPointNodeBuilder {
 public:
  explicit FixedPointNodeBuilder(Expansion& e) : e_(e) {}
  ValueId add(ValueId a, ValueId b) { return e_.add("Add", {a, b}); }
  ValueId constant(double value, DType dtype) { return e_.add_scalar(value, dtype); }
  ValueId clamp_to(ValueId id, double min_value, double max_value);
  ValueId clamp_int16(ValueId id) { return clamp_to(id, -32768, 32767); }
  ValueId divide_by_pot(ValueId id, int shift);  // divides by 2^shift; halves round away from 0
  ValueId saturating_mul(ValueId a, ValueId b);  // multiplies two int16 values stored in int32; their integer bits add up
  ValueId apply_multiplier(
      ValueId id,
      const FixedPointMultiplier& multiplier);  // multiplies an int32 value with two roundings; returns int64, not saturated
  ValueId look_up_table(const std::vector<double>& table, ValueId id);  // looks up int16 values stored in int32; returns int32
  // Multiplies gates that are concatenated on the last axis (`units` elements each) by one multiplier per gate, as apply_multiplier() does.
  ValueId scale_gates(ValueId id, const std::vector<FixedPointMultiplier>& multipliers, const AxisLength& units);
  // Applies the activation functions to concatenated gates (int16 stored in int32): tanh to gate `candidate`, the logistic function to the
  // others.
  ValueId apply_gate_functions(ValueId id, int integer_bits, size_t count, size_t candidate, const AxisLength& units);

 private:
  ValueId repeat_each(const std::vector<double>& numbers, const AxisLength& size, DType dtype);  // repeats each number `size` times
  ValueId divide_rounding_up(ValueId id, int shift);  // divides by 2^shift, rounding to nearest; halves round up

  Expansion& e_;
};

}  // namespace pumice::nnapi

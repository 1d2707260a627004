// Fixed-point arithmetic with 16 and 32 bits: on the host for function tables, and as nodes. An int16 with k integer bits represents its
// integer value times 2^(k - 15).
#pragma once

#include <cstdint>

#include "graph/nnapi/expansion.h"

namespace pumice::nnapi {

// A factor as m / 2^31 times a power of two.
struct Multiplier {
  int32_t mantissa;
  int exponent;
};
Multiplier make_multiplier(double factor);

// Return a function's values for every int16 from -32768 up. Arguments have this many integer bits; results have none.
std::vector<double> tanh_table(int integer_bits);
std::vector<double> logistic_table(int integer_bits);

// Nodes on int32 and int64 values.
class FixedPoint {
 public:
  explicit FixedPoint(Expansion& e) : e_(e) {}
  ValueId add(ValueId a, ValueId b) { return e_.add("Add", {a, b}); }
  ValueId number(double value, DType dtype) { return e_.scalar(value, dtype); }
  ValueId clamp_to(ValueId id, double min_value, double max_value);  // clamps the value
  ValueId clamp_int16(ValueId id) { return clamp_to(id, -32768, 32767); }
  ValueId rounded(ValueId id, int shift);            // divides by 2^shift; halves round away from 0
  ValueId product(ValueId a, ValueId b);             // product of two int16 values stored in int32; integer bits add up
  ValueId scaled(ValueId id, const Multiplier& by);  // multiplies an int32 with two roundings; returns int64, not saturated
  ValueId look_up_table(const std::vector<double>& table, ValueId id);  // looks up an int16 stored in int32; the result is int32
  // Scales gates that are concatenated on the last axis (`units` elements each) by one factor per gate, as scaled() does.
  ValueId scale_gates(ValueId id, const std::vector<Multiplier>& by, const Length& units);
  // Applies the activation functions to such gates, as int16 stored in int32: tanh to the candidate, the logistic function to the others.
  ValueId apply_gate_functions(ValueId id, int integer_bits, size_t count, size_t candidate, const Length& units);

 private:
  ValueId repeat_each(const std::vector<double>& numbers, const Length& size, DType dtype);  // repeats each number `size` times
  ValueId divide_rounding_up(ValueId id, int shift);  // divides by 2^shift, rounding to nearest; halves round up

  Expansion& e_;
};

}  // namespace pumice::nnapi

// Arithmetic of 16-bit and 32-bit fixed-point numbers: on the host, for tables of functions, and as nodes. An int16 with k integer bits
// stands for its integer times 2^(k - 15).
#pragma once

#include <cstdint>

#include "graph/nnapi/expansion.h"

namespace pumice::nnapi {

// A factor as an integer m / 2^31 and a power of two.
struct Multiplier {
  int32_t mantissa;
  int exponent;
};
Multiplier multiplier_of(double factor);

// The value of a function at every int16, from -32768 on, for an argument of so many integer bits; the result has none.
std::vector<double> tanh_table(int integer_bits);
std::vector<double> logistic_table(int integer_bits);

// Nodes on int32 and int64 values.
class FixedPoint {
 public:
  explicit FixedPoint(Expansion& e) : e_(e) {}
  ValueId add(ValueId a, ValueId b) { return e_.add("Add", {a, b}); }
  ValueId number(double value, DType dtype) { return e_.scalar(value, dtype); }
  ValueId held(ValueId id, double least, double most);  // at least and at most
  ValueId held16(ValueId id) { return held(id, -32768, 32767); }
  ValueId rounded(ValueId id, int shift);                           // by 2^shift; halves away from 0
  ValueId product(ValueId a, ValueId b);                            // of two int16 in int32; integer bits add
  ValueId scaled(ValueId id, const Multiplier& by);                 // int32, by two roundings: int64 held to nothing
  ValueId looked_up(const std::vector<double>& table, ValueId id);  // of an int16 in int32: int32
  // Gates that lie one after the other on the last axis, of so many units each: every gate by a factor of its own, as scaled().
  ValueId scaled_each(ValueId id, const std::vector<Multiplier>& by, const Length& units);
  // The functions of such gates, of int16 in int32: tanh for the candidate, for the others the logistic one.
  ValueId gates_of(ValueId id, int integer_bits, size_t count, size_t candidate, const Length& units);

 private:
  ValueId runs(const std::vector<double>& numbers, const Length& size, DType dtype);  // each number so many times
  ValueId divided_up(ValueId id, int shift);                                          // by 2^shift, rounded to the nearest; halves up

  Expansion& e_;
};

}  // namespace pumice::nnapi

// Reductions over axes, defined by folds. Also used for global pooling.
#pragma once

#include "operators/common/strided_copy.h"

namespace pumice {

constexpr int64_t kMinColumns = 16;  // minimum number of adjacent columns for coalesced reads

enum class FoldInitialValue : uint8_t {
  zero,
  one,
  lowest,
  highest
};  // lowest: minus infinity, or the smallest integer; highest: the opposite

// A reduction, defined by expressions (operators/expression) that device and host share. `step` adds element v to accumulator s, `merge`
// combines accumulators s and t, and `finish` computes the result from accumulator s and the number of elements n.
struct ReductionFold {
  FoldInitialValue start = FoldInitialValue::zero;
  std::string_view step = "s + v", merge = "s + t", finish = "s";
  bool log_sum_exp = false;  // log-sum-exp has no expressions, because its accumulator is a pair (maximum, sum)
};

// Folds that several operators share. All other folds are defined with their operator rows.
inline constexpr ReductionFold kSumFold{}, kMeanFold{.finish = "s / n"}, kLogSumExpFold{.log_sum_exp = true},
    kProductFold{.start = FoldInitialValue::one, .step = "s * v", .merge = "s * t"},
    kMaxFold{.start = FoldInitialValue::lowest, .step = "max(s, v)", .merge = "max(s, t)"};

enum ArgReduceMode : uint8_t { kArgMax, kArgMin };  // OperatorRow::form of the arg-reduce operators

// GLSL of a fold whose accumulator has the type `accumulator`. `start` is its initial value. `step` adds element v with index i to
// accumulator s, `merge` combines s and t, and `finish` computes the result from s and the number of elements n.
struct FoldGlsl {
  std::string accumulator, start, step, merge, finish;
  Macros macros = {};  // macros that the GLSL above uses
  std::string y_type = {},
              store = {};      // element type of y, and statement that stores `v` in y[i], if results are not stored in the output's dtype
  std::string result = {};     // type of `v`, if `store` is set
  bool is_arg_reduce = false;  // ArgMax or ArgMin: the result is an index
};

uint64_t get_accumulator_bytes(const FoldGlsl& fold);
// Returns the macros that declare and load elements of array "x" (X_TYPE, LOAD(i)) or declare and store elements of "y" (Y_TYPE, STORE(i,
// v)).
Macros make_element_macros(const std::string& array, DType dtype);
// Returns the macros of include/math.glsl for a fold with a 64-bit accumulator; empty for 32 bits.
Macros make_64bit_macros(std::string_view accumulator);

// Returns the GLSL of a fold of `dtype` elements. Throws an UnsupportedError that names the node if the device has no arithmetic for the
// dtype.
FoldGlsl make_fold_glsl(const NodeContext& node, const ReductionFold& fold, DType dtype);

// Adds the steps that reduce input 0 to `y`. `kept`: the axes of the results, with the strides of the input and of y. `reduced`: the axes
// to reduce, with the strides of the input.
void add_fold(LowerContext& node, const FoldGlsl& fold, IndexSpace kept, IndexSpace reduced, const Operand& y);

// Adds an exclusive prefix sum in int32: y[i] = x[0] + .. + x[i - 1].
void add_exclusive_sum(LowerContext& node, const Operand& x, const Operand& y, int64_t size);
// Adds float32 inclusive prefix sums along contiguous rows.
void add_row_cumsum(LowerContext& node, const Operand& x, const Operand& y, int64_t rows, int64_t size);

}  // namespace pumice

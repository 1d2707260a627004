// Folds over axes, for reductions and global pooling.
#pragma once

#include "operators/common/strided_copy.h"

namespace pumice {

constexpr int64_t kMinColumns = 16;  // minimum number of adjacent columns for coalesced reads

enum class FoldInitialValue : uint8_t { zero, one, lowest, highest };  // lowest: minus infinity, or the smallest integer

// A reduction as expressions used by device and host (operators/expression): `step` of accumulator s and element v, `merge` of accumulators
// s and t, `finish` of accumulator s and element count n.
struct ReductionFold {
  FoldInitialValue start = FoldInitialValue::zero;
  std::string_view step = "s + v", merge = "s + t", finish = "s";
  bool log_sum_exp = false;  // the accumulator is (maximum, sum), so there are no expressions
};

// Folds of several operators. All other folds are defined with their operator rows.
inline constexpr ReductionFold kSumFold{}, kMeanFold{.finish = "s / n"}, kLogSumExpFold{.log_sum_exp = true},
    kProductFold{.start = FoldInitialValue::one, .step = "s * v", .merge = "s * t"},
    kMaxFold{.start = FoldInitialValue::lowest, .step = "max(s, v)", .merge = "max(s, t)"};

enum ArgReduceMode : uint8_t { kArgMax, kArgMin };  // OperatorRow::form of the arg-reduce operators

// GLSL of a fold with an accumulator of type `accumulator`: `start`, `step` of accumulator s, element v and its index i, `merge` of s and
// t, `finish` of s and the count n.
struct FoldGlsl {
  std::string accumulator, start, step, merge, finish;
  Macros macros = {};                   // macros that the GLSL above uses
  std::string y_type = {}, store = {};  // type of y, and the statement that stores `v` in y[i], if results do not have the output's dtype
  std::string result = {};              // type of `v`, if `store` is set
  bool is_arg_reduce = false;           // arg-reduce: the result is an index
};

uint64_t get_accumulator_bytes(const FoldGlsl& fold);
// Macros that declare and load elements of array "x", or declare and store elements of "y": X_TYPE, LOAD(i), Y_TYPE, STORE(i, v).
Macros make_element_macros(const std::string& array, DType dtype);
// Macros of include/math.glsl for a fold in 64 bits.
Macros make_64bit_macros(std::string_view accumulator);

// Returns the GLSL of a fold over `dtype`. Throws UnsupportedError naming the node for a dtype without arithmetic.
FoldGlsl make_fold_glsl(const NodeContext& node, const ReductionFold& fold, DType dtype);

// Adds a fold of input 0 into `y`: each element of y folds over the axes `reduced`. `kept` has the strides of the input and y, `reduced`
// those of the input.
void add_fold(LowerContext& node, const FoldGlsl& fold, IndexSpace kept, IndexSpace reduced, const Operand& y);

// Adds an exclusive prefix sum: y[i] = x[0] + .. + x[i - 1], in int32.
void add_exclusive_sum(LowerContext& node, const Operand& x, const Operand& y, int64_t size);
// Adds float32 running sums along dense rows.
void add_row_cumsum(LowerContext& node, const Operand& x, const Operand& y, int64_t rows, int64_t size);

}  // namespace pumice

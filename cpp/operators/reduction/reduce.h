// Folds over axes, for the reductions and for poolings over whole planes.
#pragma once

#include "operators/means/strided.h"

namespace pumice {

constexpr int64_t kFewestColumns = 16;  // neighbouring results that are worth reading side by side

enum class FoldStart : uint8_t { zero, one, lowest, highest };  // lowest: minus infinity, or the least integer

// A reduction as expressions that device and host share (operators/expression): `step` of the accumulator s and an element v, `merge` of
// two accumulators s and t, `finish` of s and the count n of elements.
struct ReductionFold {
  FoldStart start = FoldStart::zero;
  std::string_view step = "s + v", merge = "s + t", finish = "s";
  bool exponentials = false;  // the logarithm of a sum of exponentials, whose accumulator is two numbers, and no expression
};

// The folds that other operators use too. Those of a single reduction stand beside its row.
inline constexpr ReductionFold kSumFold{}, kMeanFold{.finish = "s / n"}, kLogSumExpFold{.exponentials = true},
    kProductFold{.start = FoldStart::one, .step = "s * v", .merge = "s * t"},
    kMaxFold{.start = FoldStart::lowest, .step = "max(s, v)", .merge = "max(s, t)"};

enum ArgForm : uint8_t { kArgMax, kArgMin };  // the rows of positions by what they look for: OperatorRow::form

// The GLSL of a fold over an accumulator of type `accumulator`: `start`, `step` of s, the element v and its number i, `merge` of s and t,
// `finish` of s and the count n.
struct Fold {
  std::string accumulator, start, step, merge, finish;
  Macros macros = {};                   // macros that these texts use
  std::string y_type = {}, store = {};  // type and store of `v` in y[i], where results are not elements of the output's dtype
  std::string result = {};              // the type of `v` then
  bool is_position = false;             // the result is the place of the best element
};

uint64_t accumulator_bytes(const Fold& fold);
// The macros that declare and load the elements of array "x", or declare and store those of "y": X_TYPE, LOAD(i), Y_TYPE, STORE(i, v).
Macros element_macros(const std::string& array, DType dtype);
// The macros of include/math.glsl for a fold that computes in 64 bits.
Macros width_macros(std::string_view accumulator);

// The GLSL of a fold of elements of `dtype`. Throws UnsupportedError naming the node for a dtype that has no arithmetic.
Fold fold_of(const NodeContext& node, const ReductionFold& fold, DType dtype);

// Adds a fold of input 0 into `y`: each element of y folds `reduced`. `kept` has the strides of the input and of y, `reduced` the input's.
void add_fold(LowerContext& node, const Fold& fold, IndexSpace kept, IndexSpace reduced, const Operand& y);

// Adds the sums before each element: y[i] = x[0] + .. + x[i - 1], of int32.
void add_sums_before(LowerContext& node, const Operand& x, const Operand& y, int64_t size);
// Adds running sums of float32 along dense rows.
void add_row_sums(LowerContext& node, const Operand& x, const Operand& y, int64_t rows, int64_t size);

}  // namespace pumice

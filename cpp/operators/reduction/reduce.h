// Folds over axes, for the reductions and for poolings over whole planes.
#pragma once

#include "operators/means/strided.h"

namespace pumice {

constexpr int64_t kFewestColumns = 16;  // neighbouring results that are worth reading side by side

// How elements are folded, as GLSL over an accumulator of type `accumulator`: `start`, `step` of s, the element v and its number i,
// `merge` of s and t, `finish` of s and the count n.
struct Fold {
  std::string accumulator, start, step, merge, finish;
  Macros macros = {};                   // that these texts use
  std::string y_type = {}, store = {};  // of `v` in y[i], where results are not elements of the output's dtype
  std::string result = {};              // the type of `v` then
  bool is_position = false;             // where the best element is
};

uint64_t accumulator_bytes(const Fold& fold);
// How the elements of array "x" are declared and loaded, or those of "y" declared and stored: X_TYPE, LOAD(i), Y_TYPE, STORE(i, v).
Macros element_macros(const std::string& array, DType dtype);
// What include/math.glsl is told where a fold computes in 64 bits.
Macros width_macros(std::string_view accumulator);

// The fold of an operator ("ReduceMean") for elements of `dtype`. Throws UnsupportedError naming the node where there is none.
Fold fold_of(const NodeContext& node, std::string_view op, DType dtype);

// `y` from input 0: each of its elements folds `reduced`. `kept` has the strides of the input and of y, `reduced` the input's.
void add_fold(LowerContext& node, const Fold& fold, IndexSpace kept, IndexSpace reduced, const Operand& y);

// y[i] = x[0] + .. + x[i - 1], of int32.
void add_sums_before(LowerContext& node, const Operand& x, const Operand& y, int64_t size);
// Running sums of float32 along dense rows.
void add_row_sums(LowerContext& node, const Operand& x, const Operand& y, int64_t rows, int64_t size);

}  // namespace pumice

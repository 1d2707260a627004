// Reversal along an axis, and transposition.
#include <limits>

#include "graph/nnapi/expansion.h"
#include "graph/nnapi/operations.h"

namespace pumice::nnapi {
namespace {

constexpr int64_t kBeforeFirst = std::numeric_limits<int64_t>::min();

// Adds an output with the operand's quantization.
void add_reordered_output(Expansion& e, ValueId id) {
  e.add_output(id, e.operand_quantization(0));
}

void check_reverse(Operands& o) {
  const auto axes = o.numbers(1);
  if (!axes) return o.expect_length(1, 1, "axis expected");
  if (axes->size() != 1) o.fail(1, "one axis expected; given " + to_string(*axes));
  if (const auto rank = o.rank(0)) o.axis(1, *rank);
}

void reverse(Expansion& e) {
  const auto reversed = [&](ValueId axis) {
    return e.add("Slice", {e[0], e.integers({-1}), e.integers({kBeforeFirst}), axis, e.integers({-1})});
  };
  if (!e.known(1)) {
    const ValueId y = reversed(e.as_int64(1));
    if (const auto& shape = e.value(0).shape) e.refine(y, *shape);
    return add_reordered_output(e, y);
  }
  add_reordered_output(e, reversed(e.integers({e.any_axis(1, 0)})));
}

void transpose(Expansion& e) {
  const bool reverses = !e.has(1) || (e.rules().facts()[1].shape && e.rules().facts()[1].shape == Shape{0});
  if (reverses) return add_reordered_output(e, e.add("Transpose", {e[0]}));
  if (!e.known(1)) {  // the permutation is given at run time
    const ValueId y = e.add("pumice::TransposeBy", {e[0], e[1]});
    if (const auto& shape = e.value(0).shape) e.refine(y, Shape(shape->size(), kUnknownSize));
    return add_reordered_output(e, y);
  }
  add_reordered_output(e, e.add("Transpose", {e[0]}, with({{"perm", e.list(1)}})));
}

}  // namespace

Operations reverse_transpose_operations() {
  constexpr DTypeSet reals = kFloat | kQuant, numbers = reals | kInt;
  return {{"nnapi::REVERSE",
           7,
           "One axis back to front.",
           {tensor("x", numbers), list("axis")},
           {tensor("y", numbers)},
           reverse,
           {},
           check_reverse},
          {"nnapi::TRANSPOSE",
           2,
           "The axes in another order, or back to front.",
           {tensor("x", reals), list("perm", true)},
           {tensor("y", reals)},
           transpose}};
}

}  // namespace pumice::nnapi

// NNAPI REVERSE and TRANSPOSE.
#include <limits>

#include "graph/nnapi/expansion.h"
#include "graph/nnapi/operations.h"

namespace pumice::nnapi {
namespace {

constexpr int64_t kBeforeFirst = std::numeric_limits<int64_t>::min();

// Adds an output with the quantization of operand 0.
void add_output_quantized_like_input(Expansion& e, ValueId id) {
  e.add_output(id, e.operand_quantization(0));
}

void check_reverse(Operands& o) {
  const auto axes = o.known_ints(1);
  if (!axes) return o.expect_length(1, 1, "axis expected");
  if (axes->size() != 1) o.fail(1, "one axis expected; given " + to_string(*axes));
  if (const auto rank = o.rank(0)) o.read_axis(1, *rank);
}

void expand_reverse(Expansion& e) {
  const auto reversed = [&](ValueId axis) {
    return e.add("Slice", {e[0], e.add_int64_vector({-1}), e.add_int64_vector({kBeforeFirst}), axis, e.add_int64_vector({-1})});
  };
  if (!e.known_ints(1)) {
    const ValueId y = reversed(e.cast_to_int64(1));
    if (const auto& shape = e.value(0).shape) e.refine_shape(y, *shape);
    return add_output_quantized_like_input(e, y);
  }
  add_output_quantized_like_input(e, reversed(e.add_int64_vector({e.read_onnx_axis(1, 0)})));
}

void expand_transpose(Expansion& e) {
  const bool reverses = !e.has(1) || (e.rules().facts()[1].shape && e.rules().facts()[1].shape == Shape{0});
  if (reverses) return add_output_quantized_like_input(e, e.add("Transpose", {e[0]}));
  if (!e.known_ints(1)) {  // the permutation is known only at run time
    const ValueId y = e.add("pumice::TransposeBy", {e[0], e[1]});
    if (const auto& shape = e.value(0).shape) e.refine_shape(y, Shape(shape->size(), kUnknownSize));
    return add_output_quantized_like_input(e, y);
  }
  add_output_quantized_like_input(e, e.add("Transpose", {e[0]}, make_attrs({{"perm", e.read_list(1)}})));
}

}  // namespace

Operations make_reverse_transpose_operations() {
  constexpr DTypeSet reals = kFloat | kQuant, numbers = reals | kInt;
  return {{"nnapi::REVERSE",
           7,
           "One axis back to front.",
           {tensor_arg("x", numbers), list_arg("axis")},
           {tensor_arg("y", numbers)},
           expand_reverse,
           {},
           check_reverse},
          {"nnapi::TRANSPOSE",
           2,
           "The axes in another order, or back to front.",
           {tensor_arg("x", reals), list_arg("perm", true)},
           {tensor_arg("y", reals)},
           expand_transpose}};
}

}  // namespace pumice::nnapi

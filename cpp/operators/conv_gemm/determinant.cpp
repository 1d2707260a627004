// Lowers Det.
#include <algorithm>

#include "core/rounding.h"
#include "operators/conv_gemm/lowerings.h"
#include "operators/reduction/reduce.h"

namespace pumice {

void lower_determinant(LowerContext& node) {
  constexpr int64_t kMaxSingleThread = 8;  // size of the largest matrix that a single invocation processes
  const TensorDesc &x = node.input(0), &y = node.output(0);
  const int64_t matrices = y.elements(), size = x.shape.back();
  if (matrices == 0) return;
  node.check_arithmetic(x.dtype);
  const int64_t group_threads = size <= kMaxSingleThread ? 1 : 64;
  // Loop iterations per invocation: for each pivot, a search in the pivot's column, and the elimination of the rows below it.
  node.check_loop_limit(ceil_div(size * size, group_threads) + size * (group_threads + 2 * ceil_div(size, group_threads) * (size + 2)));
  const std::string type = x.dtype == DType::float64 ? "double" : "float";
  Macros macros = {{"TYPE", type}, {"ONE_THREAD_PER_ITEM", group_threads == 1 ? "1" : "0"}};
  const auto append = [&](const Macros& more) { macros.insert(macros.end(), more.begin(), more.end()); };
  append(make_element_macros("x", x.dtype));
  append(make_element_macros("y", y.dtype));
  append(make_64bit_macros(type));
  const Operand work =
      node.add_temporary(std::max<uint64_t>(TensorDesc(type == "double" ? DType::float64 : DType::float32, x.shape).bytes(), 16));
  StepBuilder step(node.kernel("determinant.comp", x.dtype, macros));
  step.bind("x", node.input_operand(0)).bind("y", node.output_operand(0)).bind("a", work).set("matrices", matrices).set("size", size);
  node.add((group_threads == 1 ? step.set_threads(static_cast<uint64_t>(matrices)) : step.set_workgroups(static_cast<uint64_t>(matrices)))
               .build());
}

}  // namespace pumice

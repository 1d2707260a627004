// Computes class probabilities from the probabilities of pairs of classes, as for SVM classifiers.
#include <algorithm>

#include "core/rounding.h"
#include "operators/ml/lowerings.h"
#include "operators/reduction/reduce.h"

namespace pumice {

void lower_pairwise_coupling(LowerContext& node) {
  constexpr int64_t kMaxIterations = 100,
                    kMaxClassesPerInvocation = 8;  // maximum number of iterations; maximum number of classes for a single invocation
  constexpr double kTolerance = 0.005;             // convergence threshold, divided by the number of classes
  const TensorDesc &x = node.input(0), &y = node.output(0);
  const int64_t rows = y.shape[0], classes = y.shape[1];
  if (rows == 0) return;
  const int64_t members = classes <= kMaxClassesPerInvocation ? 1 : 64, classes_per_member = ceil_div(classes, members);
  node.check_loop_limit(classes_per_member * classes + kMaxIterations * (2 * classes_per_member + 2) * classes);
  Macros macros = make_element_macros("x", x.dtype);
  macros.emplace_back("ONE_THREAD_PER_ITEM", members == 1 ? "1" : "0");
  const auto append = [&](const Macros& more) { macros.insert(macros.end(), more.begin(), more.end()); };
  append(make_element_macros("y", y.dtype));
  append(make_64bit_macros("float"));
  StepBuilder step(node.kernel("pairwise_coupling.comp", x.dtype, macros));
  step.bind("x", get_contiguous_input(node, 0)).bind("y", node.output_operand(0));
  step.bind("a", node.add_temporary(TensorDesc(DType::float32, {rows, 3, classes}).bytes()));
  step.set("rows", rows).set("classes", classes).set("rounds", kMaxIterations).set("tolerance", kTolerance / static_cast<double>(classes));
  node.add((members == 1 ? step.set_threads(static_cast<uint64_t>(rows)) : step.set_workgroups(static_cast<uint64_t>(rows))).build());
}

}  // namespace pumice

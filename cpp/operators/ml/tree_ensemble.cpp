// Lowers ensembles of decision trees.
#include "operators/common/strided_copy.h"
#include "operators/ml/lowerings.h"
#include "operators/table/operator_table.h"

namespace pumice {

void lower_tree_ensemble(LowerContext& node) {
  const TensorDesc &x = node.input(0), &nodes = node.input(1), &entries = node.input(2), &roots = node.input(3);
  const std::string fold = node.attributes->text("aggregate_function");
  const int64_t depth = node.attributes->integer("depth");
  node.check_loop_limit(roots.elements() * (depth + 1));
  const Macros macros = {{"FOLD", fold == "SUM" ? "0" : fold == "AVERAGE" ? "1" : fold == "MIN" ? "2" : "3"}};
  add_contiguous_float_output(node, 0, "tree_ensemble.comp", macros, [&](StepBuilder& step) {
    step.bind("x", get_contiguous_input(node, 0))
        .bind("nodes", get_contiguous_input(node, 1))
        .bind("entries", get_contiguous_input(node, 2));
    step.bind("roots", get_contiguous_input(node, 3)).set("features", x.shape[1]).set("targets", node.output(0).shape[1]);
    step.set("trees", roots.elements()).set("depth", depth).set("node_count", nodes.shape[0]).set("entry_count", entries.shape[0]);
  });
}

// Lowers a tree ensemble in fp64. Its thresholds and weights take two words each, and its kernel has no epilogue.
void lower_tree_ensemble_fp64(LowerContext& node) {
  const TensorDesc &x = node.input(0), &nodes = node.input(1), &entries = node.input(2), &roots = node.input(3), &y = node.output(0);
  if (y.elements() == 0) return;
  node.check_arithmetic(DType::float64);
  const std::string fold = node.attributes->text("aggregate_function");
  const int64_t depth = node.attributes->integer("depth");
  node.check_loop_limit(roots.elements() * (depth + 1));
  const Macros macros = {{"FOLD", fold == "SUM" ? "0" : fold == "AVERAGE" ? "1" : fold == "MIN" ? "2" : "3"}};
  StepBuilder step(node.kernel("tree_ensemble_fp64.comp", DType::float32, macros));
  const Operand dense = get_contiguous_output(node, 0);
  step.bind("x", get_contiguous_input(node, 0)).bind("nodes", get_contiguous_input(node, 1)).bind("entries", get_contiguous_input(node, 2));
  step.bind("roots", get_contiguous_input(node, 3)).bind("y", dense).set("elements", y.elements()).set("features", x.shape[1]);
  step.set("targets", y.shape[1]).set("trees", roots.elements()).set("depth", depth);
  step.set("node_count", nodes.shape[0]).set("entry_count", entries.shape[0]);
  node.add(step.set_threads(static_cast<uint64_t>(y.elements())).build());
  copy_contiguous_output(node, 0, dense);
}

}  // namespace pumice

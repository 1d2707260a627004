// LSH projection (locality-sensitive hashing): for each seed, the sign of a weighted sum of hashes. Most signs of similar tensors agree.
#include "core/rounding.h"
#include "operators/common/strided_copy.h"
#include "operators/ml/lowerings.h"
#include "operators/table/operator_table.h"

namespace pumice {

void lower_lsh_projection(LowerContext& node) {
  constexpr int64_t kRowsPerStep = 64, kBlock = 64;  // rows hashed in parallel; bytes per hash iteration
  const TensorDesc &seeds = node.input(0), &x = node.input(1);
  if (seeds.elements() == 0) return;
  const bool is_weighted = node.has_input(2);
  const int64_t num_rows = x.shape[0], element_bytes = static_cast<int64_t>(bits(x.dtype) / 8),
                row_bytes = x.elements() / num_rows * element_bytes;
  node.check_loop_limit(ceil_div(num_rows, kRowsPerStep) * (kRowsPerStep + row_bytes / kBlock + 2));
  const Macros macros = {{"ELEMENT_BYTES", std::to_string(element_bytes) + "u"}, {"WEIGHTED", is_weighted ? "1" : "0"}};
  StepBuilder step(node.kernel("lsh_projection.comp", DType::float32, macros));
  step.bind("seeds", get_contiguous_input(node, 0)).bind("x", get_contiguous_input(node, 1)).bind("y", node.output_operand(0));
  if (is_weighted) step.bind("weights", get_contiguous_input(node, 2));
  step.set("num_seeds", seeds.elements()).set("rows", num_rows).set("row_bytes", row_bytes);
  node.add(step.set_workgroups(static_cast<uint64_t>(seeds.elements())).build());
}

}  // namespace pumice

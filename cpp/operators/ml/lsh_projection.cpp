// LSH projection: signs of hash sums, many of which agree for similar tensors.
#include "core/rounding.h"
#include "operators/common/strided_copy.h"
#include "operators/ml/lowerings.h"
#include "operators/table/operator_table.h"

namespace pumice {

void lower_hash_projection(LowerContext& node) {
  constexpr int64_t kParts = 64, kBlock = 64;  // number of parts hashed in parallel; bytes per hash step
  const TensorDesc &seeds = node.input(0), &x = node.input(1);
  if (seeds.elements() == 0) return;
  const bool is_weighted = node.has_input(2);
  const int64_t parts = x.shape[0], item = static_cast<int64_t>(bits(x.dtype) / 8), part_bytes = x.elements() / parts * item;
  node.check_loops(ceil_div(parts, kParts) * (kParts + part_bytes / kBlock + 2));
  const Macros macros = {{"ITEM", std::to_string(item) + "u"}, {"WEIGHTED", is_weighted ? "1" : "0"}};
  StepBuilder step(node.kernel("lsh_projection.comp", DType::float32, macros));
  step.bind("seeds", dense_input(node, 0)).bind("x", dense_input(node, 1)).bind("y", node.out(0));
  if (is_weighted) step.bind("weights", dense_input(node, 2));
  step.set("seed_count", seeds.elements()).set("parts", parts).set("part_bytes", part_bytes);
  node.add(step.groups(static_cast<uint64_t>(seeds.elements())).build());
}

}  // namespace pumice

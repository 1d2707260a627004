// Lowers RotaryEmbedding.
#include "operators/attention/attention.h"
#include "operators/attention/lowerings.h"
#include "operators/common/strided_copy.h"
#include "operators/table/operator_table.h"

namespace pumice {

void lower_rotary_embedding(LowerContext& node) {
  if (node.input(0).elements() == 0) return;
  const Attributes& attributes = *node.attributes;
  const int64_t count = attributes.integer("num_heads");
  const HeadTensor x = view_heads(node, split_into_heads(node.input(0), count), node.input_operand(0)),
                   y = view_heads(node, split_into_heads(node.output(0), count), node.output_operand(0));
  const int64_t requested_dim = attributes.integer("rotary_embedding_dim"), rotary_dim = requested_dim == 0 ? x.size() : requested_dim;
  const bool has_position_ids = node.has_input(3);
  StepBuilder step(node.kernel(
      "rotary_embedding.comp", node.float_dtype,
      {{"HAS_POSITION_IDS", has_position_ids ? "1" : "0"}, {"INTERLEAVED", attributes.integer("interleaved") != 0 ? "1" : "0"}}));
  step.bind("x", x.operand)
      .bind("cosines", get_contiguous_input(node, 1))
      .bind("sines", get_contiguous_input(node, 2))
      .bind("y", y.operand);
  if (has_position_ids) step.bind("position_ids", get_contiguous_input(node, 3));
  const int64_t pairs = x.batch() * x.heads() * x.rows() * x.size() / 2;
  step.set("pairs", pairs).set("heads", x.heads()).set("rows", x.rows()).set("size", x.size()).set("rotary_dim", rotary_dim);
  if (has_position_ids) step.set("table_rows", node.input(1).shape[0]);
  set_strides(step, "x", x);
  set_strides(step, "y", y);
  node.add(step.set_threads(static_cast<uint64_t>(pairs)).build());
}

}  // namespace pumice

// RoPE of queries and keys, fused with the KV cache update: the operator "pumice::RotaryCaches".
#include <array>
#include <optional>

#include "operators/attention/attention.h"
#include "operators/attention/lowerings.h"
#include "operators/common/composite_lowering.h"
#include "operators/common/strided_copy.h"
#include "operators/table/operator_table.h"

namespace pumice {
namespace {

enum RotaryCacheInput : size_t { kNewQueries, kNewKeys, kNewValues, kCosines, kSines, kPositionIds, kPastKeys, kPastValues, kWriteIndices };
enum RotaryCacheOutput : size_t { kRotatedQueries, kKeys, kValues };

}  // namespace

void add_cache_copy(LowerContext& node, size_t from, size_t to) {
  const TensorDesc& cache = node.output(to);
  const auto words = static_cast<int64_t>((cache.bytes() + 3) / 4);
  StepBuilder copy(node.kernel("copy_words.comp", DType::float32, {{"ELEMENT_BITS", std::to_string(bits(cache.dtype)) + "u"}}));
  copy.bind("x", get_contiguous_input(node, from)).bind("y", node.output_operand(to)).set("words", words);
  node.add(copy.set_threads(static_cast<uint64_t>((words + 3) / 4)).build());
}

// Inputs: queries, keys and values [batch, heads, seq, size], cos and sin tables, position_ids, both caches, and, for each batch item, the
// first cache row to write. Outputs: the rotated queries and the updated caches.
void lower_rotary_kv_cache(LowerContext& node) {
  if (node.output(kKeys).elements() == 0) return;
  add_cache_copy(node, kPastKeys, kKeys);
  add_cache_copy(node, kPastValues, kValues);
  const HeadTensor q = view_heads(node, node.input(kNewQueries), node.input_operand(kNewQueries)),
                   k = view_heads(node, node.input(kNewKeys), node.input_operand(kNewKeys)),
                   v = view_heads(node, node.input(kNewValues), node.input_operand(kNewValues));
  const int64_t requested_dim = node.attributes->integer("rotary_embedding_dim"),
                rotary_dim = requested_dim == 0 ? q.size() : requested_dim;
  StepBuilder step(
      node.kernel("rotary_kv_cache.comp", node.float_dtype, {{"INTERLEAVED", node.attributes->integer("interleaved") != 0 ? "1" : "0"}}));
  for (const auto& [name, heads] : {std::pair{"q", &q}, {"k", &k}, {"v", &v}}) {
    step.bind(name, heads->operand);
    set_strides(step, name, *heads);
  }
  step.bind("cosines", get_contiguous_input(node, kCosines)).bind("sines", get_contiguous_input(node, kSines));
  step.bind("position_ids", get_contiguous_input(node, kPositionIds)).bind("write_indices", get_contiguous_input(node, kWriteIndices));
  step.bind("y", node.output_operand(kRotatedQueries))
      .bind("keys", node.output_operand(kKeys))
      .bind("values", node.output_operand(kValues));
  const int64_t pairs = q.batch() * (q.heads() + 2 * k.heads()) * q.rows() * (q.size() / 2);
  step.set("pairs", pairs).set("heads", q.heads()).set("kv_heads", k.heads()).set("rows", q.rows()).set("size", q.size());
  step.set("rotary_dim", rotary_dim).set("table_rows", node.input(kCosines).shape[0]).set("capacity", node.output(kKeys).shape[2]);
  if (pairs > 0) node.add(step.set_threads(static_cast<uint64_t>(pairs)).build());
}

void infer_rotary_kv_cache_shape(ShapeContext& node) {
  const Shape &q = node.input(kNewQueries).shape, &k = node.input(kNewKeys).shape, &keys = node.input(kPastKeys).shape;
  const auto shapes = [&] { return to_string(q) + ", " + to_string(k) + " and " + to_string(node.input(kNewValues).shape); };
  if (q.size() != 4 || k.size() != 4 || node.input(kNewValues).shape != k || q[0] != k[0] || q[2] != k[2] || q[3] != k[3])
    node.fail("expected queries, keys and values with the same number of rows; given " + shapes() +
              "; without fusion the graph runs as written");
  const int64_t requested_dim = node.attributes().integer("rotary_embedding_dim"), rotary_dim = requested_dim == 0 ? q[3] : requested_dim;
  if (q[3] % 2 != 0 || rotary_dim % 2 != 0 || rotary_dim < 0 || rotary_dim > q[3])
    node.fail(std::to_string(rotary_dim) + " elements to rotate in heads of " + std::to_string(q[3]) + "; expected even numbers");
  for (const size_t table : {kCosines, kSines})
    if (node.input(table).shape.size() != 2 || node.input(table).shape[1] != rotary_dim / 2)
      node.fail("a table of shape " + to_string(node.input(table).shape) + " for " + std::to_string(rotary_dim) + " elements to turn");
  if (node.input(kPositionIds).shape != Shape{q[0], q[2]})
    node.fail("expected position_ids of shape " + to_string(Shape{q[0], q[2]}) + "; given " + to_string(node.input(kPositionIds).shape));
  if (keys.size() != 4 || node.input(kPastValues).shape != keys || keys[0] != k[0] || keys[1] != k[1] || keys[3] != k[3] || keys[2] < k[2])
    node.fail("an update of shape " + to_string(k) + " for caches of shapes " + to_string(keys) + " and " +
              to_string(node.input(kPastValues).shape));
  if (node.input(kWriteIndices).shape != Shape{k[0]})
    node.fail("expected write_indices of shape " + to_string(Shape{k[0]}) + "; given " + to_string(node.input(kWriteIndices).shape));
  node.output(kRotatedQueries, node.input(kNewQueries).dtype, q);
  node.output(kKeys, node.input(kPastKeys).dtype, keys);
  node.output(kValues, node.input(kPastValues).dtype, keys);
}

}  // namespace pumice

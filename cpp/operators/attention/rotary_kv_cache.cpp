// RoPE of queries and keys, fused with the KV cache update: the operator "pumice::RotaryCaches".
#include <array>
#include <optional>

#include "operators/attention/attention.h"
#include "operators/attention/lowerings.h"
#include "operators/common/composition.h"
#include "operators/common/strided_copy.h"
#include "operators/table/operator_table.h"

namespace pumice {
namespace {

enum RotaryCachesInput : size_t { kNewQueries, kNewKeys, kNewValues, kCosines, kSines, kPlaces, kPastKeys, kPastValues, kFirsts };
enum RotaryCachesOutput : size_t { kTurnedQueries, kKeys, kValues };

}  // namespace

void add_cache_copy(LowerContext& node, size_t from, size_t to) {
  const TensorDesc& cache = node.output(to);
  const auto words = static_cast<int64_t>((cache.bytes() + 3) / 4);
  StepBuilder copy(node.kernel("copy_words.comp", DType::float32, {{"ELEMENT_BITS", std::to_string(bits(cache.dtype)) + "u"}}));
  copy.bind("x", dense_input(node, from)).bind("y", node.out(to)).set("words", words);
  node.add(copy.threads(static_cast<uint64_t>((words + 3) / 4)).build());
}

// Inputs: queries, keys and values [batch, heads, seq, size], cos and sin tables, position_ids, both caches, and, for each batch item, the
// first cache row to write. Outputs: the rotated queries and the updated caches.
void lower_rotary_caches(LowerContext& node) {
  if (node.output(kKeys).elements() == 0) return;
  add_cache_copy(node, kPastKeys, kKeys);
  add_cache_copy(node, kPastValues, kValues);
  const Heads q = heads_of(node, node.input(kNewQueries), node.in(kNewQueries)),
              k = heads_of(node, node.input(kNewKeys), node.in(kNewKeys)), v = heads_of(node, node.input(kNewValues), node.in(kNewValues));
  const int64_t given = node.attributes->integer("rotary_embedding_dim"), turned = given == 0 ? q.size() : given;
  StepBuilder step(
      node.kernel("rotary_kv_cache.comp", node.float_dtype, {{"INTERLEAVED", node.attributes->integer("interleaved") != 0 ? "1" : "0"}}));
  for (const auto& [name, heads] : {std::pair{"q", &q}, {"k", &k}, {"v", &v}}) {
    step.bind(name, heads->operand);
    set_strides(step, name, *heads);
  }
  step.bind("cosines", dense_input(node, kCosines)).bind("sines", dense_input(node, kSines));
  step.bind("places", dense_input(node, kPlaces)).bind("firsts", dense_input(node, kFirsts));
  step.bind("y", node.out(kTurnedQueries)).bind("keys", node.out(kKeys)).bind("values", node.out(kValues));
  const int64_t pairs = q.batch() * (q.heads() + 2 * k.heads()) * q.rows() * (q.size() / 2);
  step.set("pairs", pairs).set("heads", q.heads()).set("groups", k.heads()).set("rows", q.rows()).set("size", q.size());
  step.set("turned", turned).set("table_rows", node.input(kCosines).shape[0]).set("room", node.output(kKeys).shape[2]);
  if (pairs > 0) node.add(step.threads(static_cast<uint64_t>(pairs)).build());
}

void shape_of_rotary_caches(ShapeContext& node) {
  const Shape &q = node.input(kNewQueries).shape, &k = node.input(kNewKeys).shape, &keys = node.input(kPastKeys).shape;
  const auto shapes = [&] { return to_string(q) + ", " + to_string(k) + " and " + to_string(node.input(kNewValues).shape); };
  if (q.size() != 4 || k.size() != 4 || node.input(kNewValues).shape != k || q[0] != k[0] || q[2] != k[2] || q[3] != k[3])
    node.fail("queries, keys and values of as many rows expected; given " + shapes() + "; without fusion that is run as it is written");
  const int64_t given = node.attributes().integer("rotary_embedding_dim"), turned = given == 0 ? q[3] : given;
  if (q[3] % 2 != 0 || turned % 2 != 0 || turned < 0 || turned > q[3])
    node.fail(std::to_string(turned) + " elements to turn of heads of " + std::to_string(q[3]) + "; even numbers expected");
  for (const size_t table : {kCosines, kSines})
    if (node.input(table).shape.size() != 2 || node.input(table).shape[1] != turned / 2)
      node.fail("a table of shape " + to_string(node.input(table).shape) + " for " + std::to_string(turned) + " elements to turn");
  if (node.input(kPlaces).shape != Shape{q[0], q[2]})
    node.fail("position_ids of shape " + to_string(Shape{q[0], q[2]}) + " expected; given " + to_string(node.input(kPlaces).shape));
  if (keys.size() != 4 || node.input(kPastValues).shape != keys || keys[0] != k[0] || keys[1] != k[1] || keys[3] != k[3] || keys[2] < k[2])
    node.fail("an update of shape " + to_string(k) + " for caches of shapes " + to_string(keys) + " and " +
              to_string(node.input(kPastValues).shape));
  if (node.input(kFirsts).shape != Shape{k[0]})
    node.fail("write_indices of shape " + to_string(Shape{k[0]}) + " expected; given " + to_string(node.input(kFirsts).shape));
  node.output(kTurnedQueries, node.input(kNewQueries).dtype, q);
  node.output(kKeys, node.input(kPastKeys).dtype, keys);
  node.output(kValues, node.input(kPastValues).dtype, keys);
}

}  // namespace pumice

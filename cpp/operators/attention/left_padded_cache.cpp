// The rows in use of a KV cache and the new rows, left-padded with zeros to the cache's capacity.
#include "operators/attention/attention.h"
#include "operators/attention/quantized_kv_cache.h"
#include "operators/common/strided_copy.h"

namespace pumice {
namespace {

struct Joined {
  enum : size_t { cache, rows, past, scales };
};

}  // namespace

void shape_of_joined_rows(ShapeContext& node) {
  const Shape &cache = node.input(Joined::cache).shape, &rows = node.input(Joined::rows).shape;
  if (cache.size() != 4 || rows.size() != 4 || cache[0] != rows[0] || cache[1] != rows[1] || cache[3] != rows[3])
    node.fail("a cache and rows of as many and as large heads expected; given " + to_string(cache) + " and " + to_string(rows));
  if (rows[2] > cache[2])
    node.fail("at most as many rows as the cache has, " + std::to_string(cache[2]) + ", expected; given " + std::to_string(rows[2]));
  if (node.input(Joined::past).shape != Shape{cache[0]})
    node.fail("past of shape " + to_string(Shape{cache[0]}) + " expected; given " + to_string(node.input(Joined::past).shape));
  const bool in_bytes = node.input(Joined::cache).dtype == DType::int8;
  if (in_bytes != node.has(Joined::scales))
    node.fail("scales beside a cache of int8 and beside no other expected; given a cache of " +
              std::string(name(node.input(Joined::cache).dtype)) + (in_bytes ? " without scales" : " with scales"));
  if (in_bytes) {
    check_bytes(node, Joined::cache);
    check_scales(node, Joined::cache, Joined::scales);
  } else if (node.input(Joined::cache).dtype != node.input(Joined::rows).dtype) {
    node.fail("a cache and rows of one dtype expected; given " + std::string(name(node.input(Joined::cache).dtype)) + " and " +
              std::string(name(node.input(Joined::rows).dtype)));
  }
  node.output(0, node.input(Joined::rows).dtype, {cache[0], cache[1], cache[2], cache[3]});
}

void lower_joined_rows(LowerContext& node) {
  const TensorDesc& made = node.output(0);
  if (made.elements() == 0) return;
  const bool in_bytes = node.has_input(Joined::scales);
  const DType stored = in_bytes ? DType::int8 : node.float_dtype;
  const TensorDesc& given = node.input(Joined::cache);
  const Heads cache = in_bytes ? cache_bytes(node, Joined::cache)
                               : heads_of(node, TensorDesc(given.dtype, given.shape), dense_input(node, Joined::cache)),
              rows = heads_of(node, node.input(Joined::rows), node.in(Joined::rows)), y = heads_of(node, made, node.out(0));
  const auto in_items = [&](int64_t elements) {
    return cache.in_vectors(stored, elements) && rows.in_vectors(node.float_dtype, elements) && y.in_vectors(node.float_dtype, elements);
  };
  const int64_t in_words = 128 / static_cast<int64_t>(bits(node.float_dtype));  // number of elements in 16 bytes
  const bool words = !in_bytes && in_items(in_words), fours = in_bytes && in_items(4);
  const int64_t items = made.shape[3] / (words ? in_words : fours ? 4 : 1);
  const Macros macros{{"WORDS", words ? "1" : "0"}, {"VEC4", fours ? "1" : "0"}, {"INT8", in_bytes ? "1" : "0"}};
  StepBuilder step(node.kernel("left_padded_cache.comp", node.float_dtype, macros, {{"ITEMS", items}}));
  step.bind("cache", cache.operand).bind("x", rows.operand).bind("past", dense_input(node, Joined::past)).bind("y", node.out(0));
  if (in_bytes) step.bind("scales", dense_input(node, Joined::scales));
  set_strides(step, "x", rows);
  step.set("rows", node.input(Joined::rows).shape[2]).set("room", given.shape[2]).set("heads", made.shape[1]).set("images", made.shape[0]);
  const auto count = [&](size_t axis) { return static_cast<uint64_t>(made.shape[axis]); };
  node.add(step.threads(static_cast<uint64_t>(items) * count(2), count(1), count(0)).build());
}

}  // namespace pumice

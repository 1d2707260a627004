// Appends new rows to the used rows of a KV cache, and left-pads the result with zeros to the cache's capacity.
#include "operators/attention/attention.h"
#include "operators/attention/quantized_kv_cache.h"
#include "operators/common/strided_copy.h"

namespace pumice {
namespace {

struct LeftPadInput {
  enum : size_t { cache, rows, past, scales };
};

}  // namespace

void infer_left_padded_cache_shape(ShapeContext& node) {
  const Shape &cache = node.input(LeftPadInput::cache).shape, &rows = node.input(LeftPadInput::rows).shape;
  if (cache.size() != 4 || rows.size() != 4 || cache[0] != rows[0] || cache[1] != rows[1] || cache[3] != rows[3])
    node.fail("expected a cache and rows with the same number and size of heads; given " + to_string(cache) + " and " + to_string(rows));
  if (rows[2] > cache[2])
    node.fail("expected at most as many rows as the cache, " + std::to_string(cache[2]) + "; given " + std::to_string(rows[2]));
  if (node.input(LeftPadInput::past).shape != Shape{cache[0]})
    node.fail("expected past of shape " + to_string(Shape{cache[0]}) + "; given " + to_string(node.input(LeftPadInput::past).shape));
  const bool is_int8 = node.input(LeftPadInput::cache).dtype == DType::int8;
  if (is_int8 != node.has(LeftPadInput::scales))
    node.fail("expected scales if and only if the cache is int8; given a cache of " +
              std::string(name(node.input(LeftPadInput::cache).dtype)) + (is_int8 ? " without scales" : " with scales"));
  if (is_int8) {
    check_int8_cache(node, LeftPadInput::cache);
    check_scales(node, LeftPadInput::cache, LeftPadInput::scales);
  } else if (node.input(LeftPadInput::cache).dtype != node.input(LeftPadInput::rows).dtype) {
    node.fail("expected a cache and rows of one dtype; given " + std::string(name(node.input(LeftPadInput::cache).dtype)) + " and " +
              std::string(name(node.input(LeftPadInput::rows).dtype)));
  }
  node.output(0, node.input(LeftPadInput::rows).dtype, {cache[0], cache[1], cache[2], cache[3]});
}

void lower_left_padded_cache(LowerContext& node) {
  const TensorDesc& result = node.output(0);
  if (result.elements() == 0) return;
  const bool is_int8 = node.has_input(LeftPadInput::scales);
  const DType stored = is_int8 ? DType::int8 : node.float_dtype;
  const TensorDesc& cache_desc = node.input(LeftPadInput::cache);
  const HeadTensor cache = is_int8 ? get_aligned_int8_cache(node, LeftPadInput::cache)
                                   : view_heads(node, TensorDesc(cache_desc.dtype, cache_desc.shape),
                                                get_contiguous_input(node, LeftPadInput::cache)),
                   rows = view_heads(node, node.input(LeftPadInput::rows), node.input_operand(LeftPadInput::rows)),
                   y = view_heads(node, result, node.output_operand(0));
  const auto has_vectors = [&](int64_t elements) {
    return cache.has_aligned_vectors(stored, elements) && rows.has_aligned_vectors(node.float_dtype, elements) &&
           y.has_aligned_vectors(node.float_dtype, elements);
  };
  const int64_t elements_per_16_bytes = 128 / static_cast<int64_t>(bits(node.float_dtype));  // elements per 16-byte vector
  const bool is_16_bytes = !is_int8 && has_vectors(elements_per_16_bytes), is_vec4 = is_int8 && has_vectors(4);
  const int64_t items = result.shape[3] / (is_16_bytes ? elements_per_16_bytes : is_vec4 ? 4 : 1);
  const Macros macros{{"LOAD_16_BYTES", is_16_bytes ? "1" : "0"}, {"VEC4", is_vec4 ? "1" : "0"}, {"INT8", is_int8 ? "1" : "0"}};
  StepBuilder step(node.kernel("left_padded_cache.comp", node.float_dtype, macros, {{"ITEMS_PER_ROW", items}}));
  step.bind("cache", cache.operand)
      .bind("x", rows.operand)
      .bind("past", get_contiguous_input(node, LeftPadInput::past))
      .bind("y", node.output_operand(0));
  if (is_int8) step.bind("scales", get_contiguous_input(node, LeftPadInput::scales));
  set_strides(step, "x", rows);
  step.set("rows", node.input(LeftPadInput::rows).shape[2])
      .set("capacity", cache_desc.shape[2])
      .set("heads", result.shape[1])
      .set("num_batches", result.shape[0]);
  const auto count = [&](size_t axis) { return static_cast<uint64_t>(result.shape[axis]); };
  node.add(step.set_threads(static_cast<uint64_t>(items) * count(2), count(1), count(0)).build());
}

}  // namespace pumice

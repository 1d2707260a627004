// int8 KV caches: each row of a head is stored as integers from -127 to 127, with its own scale.
#include "operators/attention/quantized_kv_cache.h"

#include <algorithm>
#include <cmath>

#include "core/rounding.h"
#include "operators/attention/attention.h"
#include "operators/common/strided_copy.h"
#include "operators/table/flop.h"
#include "operators/table/operator_table.h"
#include "operators/table/row_builders.h"

namespace pumice {
namespace {

// Input and output indices of pumice::QuantizedCaches.
struct QuantizedCacheIo {
  enum : size_t { q, k, v, past_keys, past_values, past_key_scales, past_value_scales, write_indices, cosines, sines, position_ids };
  enum : size_t { rotated_queries, keys, values, key_scales, value_scales };
};
struct QuantizedAttentionIo {
  enum : size_t { q, k, v, k_scales, v_scales, kv_lengths };
};

constexpr int64_t kInt8PerWord = 4;  // number of int8 elements per word

void check_quantized_cache(const ShapeContext& node, size_t keys, size_t values, size_t key_scales, size_t value_scales) {
  const Shape& shape = node.input(keys).shape;
  if (shape.size() != 4 || node.input(values).shape != shape)
    node.fail("expected caches of one shape [batch, heads, capacity, size]; given " + to_string(shape) + " and " +
              to_string(node.input(values).shape));
  check_int8_cache(node, keys);
  for (const size_t scales : {key_scales, value_scales}) check_scales(node, keys, scales);
}

void check_rope_tables(const ShapeContext& node) {
  const Shape& q = node.input(QuantizedCacheIo::q).shape;
  if (!node.has(QuantizedCacheIo::sines) || !node.has(QuantizedCacheIo::position_ids))
    node.fail("cos_cache, sin_cache and position_ids must be given together");
  const int64_t requested_dim = node.attributes().integer("rotary_embedding_dim"), rotary_dim = requested_dim == 0 ? q[3] : requested_dim;
  if (rotary_dim % 2 != 0 || rotary_dim < 0 || rotary_dim > q[3])
    node.fail(std::to_string(rotary_dim) + " elements to rotate in heads of " + std::to_string(q[3]) + "; expected an even number of them");
  for (const size_t table : {QuantizedCacheIo::cosines, QuantizedCacheIo::sines})
    if (node.input(table).shape.size() != 2 || node.input(table).shape[1] != rotary_dim / 2)
      node.fail("a table of shape " + to_string(node.input(table).shape) + " for " + std::to_string(rotary_dim) + " elements to turn");
  if (node.input(QuantizedCacheIo::position_ids).shape != Shape{q[0], q[2]})
    node.fail("expected position_ids of shape " + to_string(Shape{q[0], q[2]}) + "; given " +
              to_string(node.input(QuantizedCacheIo::position_ids).shape));
}

// Distribution of a row over invocations: number of invocations, and vec4s per invocation.
struct ThreadsPerRow {
  int64_t row_threads, vec4_per_thread;
  Macros macros;
};

ThreadsPerRow choose_threads_per_row(const LowerContext& node, int64_t size) {
  const bool is_cpu = node.prefers_cpu_kernels();
  const int64_t row_threads = is_cpu ? 8 : 32, vec4_per_thread = ceil_div(size, row_threads * kInt8PerWord);
  return {row_threads,
          vec4_per_thread,
          {{"GROUP_THREADS", std::to_string(row_threads) + "u"},
           {"ITEMS_PER_THREAD", std::to_string(vec4_per_thread) + "u"},
           {"CPU_VARIANT", is_cpu ? "1" : "0"},
           {"SUBGROUP", std::to_string(node.subgroup_size())}}};
}

// Dequantises the used rows of a key or value cache.
HeadTensor dequantize_cache(LowerContext& node, const AttentionParams& a, const HeadTensor& bytes, const Operand& scales) {
  const int64_t rows = bytes.batch() * bytes.heads() * bytes.rows(), words = rows * bytes.size() / kInt8PerWord;
  const Shape shape{bytes.sizes.begin(), bytes.sizes.end()};
  const Operand floats = node.add_temporary(buffer_size(node.float_dtype, shape));
  StepBuilder step(node.kernel("dequantize_kv_cache.comp", node.float_dtype));
  step.bind("x", bytes.operand).bind("scales", scales).bind("counts", *a.kv_lengths).bind("y", floats);
  step.set("words", words).set("words_per_row", bytes.size() / kInt8PerWord).set("capacity", bytes.rows()).set("heads", bytes.heads());
  if (words > 0) node.add(step.set_threads(static_cast<uint64_t>(words)).build());
  return view_heads(node, TensorDesc(node.float_dtype, shape), floats);
}

}  // namespace

void check_int8_cache(const ShapeContext& node, size_t cache) {
  const int64_t size = node.input(cache).shape[3];
  if (size % kInt8PerWord != 0 || size == 0)
    node.fail("expected int8 caches with a head size that is a multiple of 4; given " + std::to_string(size));
}

void check_scales(const ShapeContext& node, size_t cache, size_t scales) {
  const Shape& shape = node.input(cache).shape;
  if (node.input(scales).shape != Shape{shape[0], shape[1], shape[2]})
    node.fail("expected scales of shape " + to_string(Shape{shape[0], shape[1], shape[2]}) + "; given " +
              to_string(node.input(scales).shape));
}

HeadTensor get_aligned_int8_cache(LowerContext& node, size_t i) {
  const TensorDesc& x = node.input(i);
  Operand operand = get_contiguous_input(node, i);
  if (get_misalignment(node, operand) != 0) {
    const Operand copy = node.add_temporary(buffer_size(x.dtype, x.shape));
    add_strided_copy(node, x.dtype, {x.shape, {x.strides, packed_strides(x.shape)}}, {operand}, {copy});
    operand = copy;
  }
  return view_heads(node, TensorDesc(x.dtype, x.shape), operand);
}

void infer_quantized_kv_cache_shape(ShapeContext& node) {
  const Shape &q = node.input(QuantizedCacheIo::q).shape, &k = node.input(QuantizedCacheIo::k).shape,
              &v = node.input(QuantizedCacheIo::v).shape, &keys = node.input(QuantizedCacheIo::past_keys).shape;
  if (q.size() != 4 || v != k || k.size() != 4 || q[0] != k[0] || q[2] != k[2] || q[3] != k[3])
    node.fail("expected queries, keys and values with the same number of rows and the same head size; given " + to_string(q) + ", " +
              to_string(k) + " and " + to_string(v));
  check_quantized_cache(node, QuantizedCacheIo::past_keys, QuantizedCacheIo::past_values, QuantizedCacheIo::past_key_scales,
                        QuantizedCacheIo::past_value_scales);
  if (keys[0] != k[0] || keys[1] != k[1] || keys[3] != k[3] || keys[2] < k[2])
    node.fail("an update of shape " + to_string(k) + " for a cache of shape " + to_string(keys));
  if (node.input(QuantizedCacheIo::write_indices).shape != Shape{k[0]})
    node.fail("expected write_indices of shape " + to_string(Shape{k[0]}) + "; given " +
              to_string(node.input(QuantizedCacheIo::write_indices).shape));
  if (node.has(QuantizedCacheIo::cosines)) check_rope_tables(node);
  node.output(QuantizedCacheIo::rotated_queries, node.input(QuantizedCacheIo::q).dtype, q);
  for (size_t i = 0; i < 4; ++i)
    node.output(QuantizedCacheIo::keys + i, node.input(QuantizedCacheIo::past_keys + i).dtype,
                node.input(QuantizedCacheIo::past_keys + i).shape);
}

void lower_quantized_kv_cache(LowerContext& node) {
  if (node.output(QuantizedCacheIo::keys).elements() == 0) return;
  for (size_t i = 0; i < 4; ++i) add_cache_copy(node, QuantizedCacheIo::past_keys + i, QuantizedCacheIo::keys + i);
  const HeadTensor q = view_heads(node, node.input(QuantizedCacheIo::q), node.input_operand(QuantizedCacheIo::q)),
                   k = view_heads(node, node.input(QuantizedCacheIo::k), node.input_operand(QuantizedCacheIo::k)),
                   v = view_heads(node, node.input(QuantizedCacheIo::v), node.input_operand(QuantizedCacheIo::v));
  const bool has_rope = node.has_input(QuantizedCacheIo::cosines);
  const int64_t requested_dim = node.attributes->integer("rotary_embedding_dim"),
                rotary_dim = requested_dim == 0 ? q.size() : requested_dim;
  Macros macros = choose_threads_per_row(node, q.size()).macros;
  macros.emplace_back("APPLY_ROPE", has_rope ? "1" : "0");
  macros.emplace_back("INTERLEAVED", node.attributes->integer("interleaved") != 0 ? "1" : "0");
  StepBuilder step(node.kernel("quantized_kv_cache.comp", node.float_dtype, macros));
  for (const auto& [name, heads] : {std::pair{"q", &q}, {"k", &k}, {"v", &v}}) {
    step.bind(name, heads->operand);
    set_strides(step, name, *heads);
  }
  if (has_rope)
    step.bind("cosines", get_contiguous_input(node, QuantizedCacheIo::cosines))
        .bind("sines", get_contiguous_input(node, QuantizedCacheIo::sines));
  if (has_rope) step.bind("position_ids", get_contiguous_input(node, QuantizedCacheIo::position_ids));
  step.bind("write_indices", get_contiguous_input(node, QuantizedCacheIo::write_indices))
      .bind("y", node.output_operand(QuantizedCacheIo::rotated_queries));
  step.bind("keys", node.output_operand(QuantizedCacheIo::keys)).bind("values", node.output_operand(QuantizedCacheIo::values));
  step.bind("key_scales", node.output_operand(QuantizedCacheIo::key_scales))
      .bind("value_scales", node.output_operand(QuantizedCacheIo::value_scales));
  const int64_t head_rows = q.batch() * (q.heads() + 2 * k.heads()) * q.rows();
  step.set("head_rows", head_rows).set("heads", q.heads()).set("kv_heads", k.heads()).set("rows", q.rows()).set("size", q.size());
  step.set("rotary_dim", has_rope ? rotary_dim : 0).set("table_rows", has_rope ? node.input(QuantizedCacheIo::cosines).shape[0] : 0);
  step.set("capacity", node.output(QuantizedCacheIo::keys).shape[2]);
  if (head_rows > 0) node.add(step.set_workgroups(static_cast<uint64_t>(head_rows)).build());
}

void infer_quantized_attention_shape(ShapeContext& node) {
  const Shape &q = node.input(QuantizedAttentionIo::q).shape, &k = node.input(QuantizedAttentionIo::k).shape;
  check_quantized_cache(node, QuantizedAttentionIo::k, QuantizedAttentionIo::v, QuantizedAttentionIo::k_scales,
                        QuantizedAttentionIo::v_scales);
  if (q.size() != 4 || q[0] != k[0] || q[3] != k[3] || (k[1] == 0 ? q[1] != 0 : q[1] % k[1] != 0))
    node.fail("expected queries with a multiple of the keys' heads and the same head size; given " + to_string(q) + " and " + to_string(k));
  if (node.input(QuantizedAttentionIo::kv_lengths).shape != Shape{k[0]})
    node.fail("expected counts of shape " + to_string(Shape{k[0]}) + "; given " +
              to_string(node.input(QuantizedAttentionIo::kv_lengths).shape));
  node.output(0, node.input(QuantizedAttentionIo::q).dtype, q);
}

// For few queries, the attention kernel reads the int8 cache. For many queries, each key is read so often that it is faster to dequantise
// the cache first.
void lower_quantized_attention(LowerContext& node) {
  const Attributes& attributes = *node.attributes;
  AttentionParams a{view_heads(node, node.input(QuantizedAttentionIo::q), node.input_operand(QuantizedAttentionIo::q)),
                    get_aligned_int8_cache(node, QuantizedAttentionIo::k), get_aligned_int8_cache(node, QuantizedAttentionIo::v),
                    view_heads(node, node.output(0), node.output_operand(0))};
  if (node.output(0).elements() == 0) return;
  a.kv_lengths = get_contiguous_input(node, QuantizedAttentionIo::kv_lengths);
  a.scale = attributes.real("scale", 1 / std::sqrt(static_cast<double>(a.q.size())));
  a.softcap = attributes.real("softcap", 0);
  if (const int64_t before = attributes.integer("left_window_size", -1); before >= 0) a.first = -before;
  if (attributes.integer("is_causal", 0) != 0) a.last = 0;
  const Operand key_scales = get_contiguous_input(node, QuantizedAttentionIo::k_scales),
                value_scales = get_contiguous_input(node, QuantizedAttentionIo::v_scales);
  if (reads_int8_kv(node, a)) {
    a.k_scales = key_scales, a.v_scales = value_scales;
  } else {
    a.k = dequantize_cache(node, a, a.k, key_scales);
    a.v = dequantize_cache(node, a, a.v, value_scales);
  }
  add_attention(node, a);
}

OperatorRows define_quantized_cache_operators() {
  const auto floats = [](std::string_view name) { return value_role(name, kFloats); };
  const auto optional_floats = [](std::string_view name) { return optional_role(name, kFloats); };
  const auto bytes = [](std::string_view name) { return value_role(name, make_dtype_set(DType::int8)); };
  return {// Applies RotaryEmbedding to queries and keys, if there are tables, and quantises keys and values into int8 caches
          {.name = "pumice::QuantizedCaches",
           .skeleton = KernelKind::index_map,
           .schema = {.inputs = {floats("q"), floats("k"), floats("v"), bytes("past_keys"), bytes("past_values"), floats("past_key_scales"),
                                 floats("past_value_scales"), value_role("write_indices", kInt64), optional_floats("cos_cache"),
                                 optional_floats("sin_cache"), optional_role("position_ids", kInt64)},
                      .outputs = {floats("y"), bytes("present_keys"), bytes("present_values"), floats("present_key_scales"),
                                  floats("present_value_scales")},
                      .attributes = {integer_attribute("interleaved", 0), integer_attribute("rotary_embedding_dim", 0)},
                      .min_rank = 4,
                      .max_rank = 4},
           .shape = infer_quantized_kv_cache_shape,
           .lower = lower_quantized_kv_cache,
           .strides = StrideSupport::any_in,
           .layout = {.permuted_inputs = make_input_mask(QuantizedCacheIo::q, QuantizedCacheIo::k, QuantizedCacheIo::v)}},
          // Attention over int8 KV caches; `counts` contains the number of used rows per batch item.
          {.name = "pumice::QuantizedAttention",
           .skeleton = KernelKind::contraction,
           .schema = {.inputs = {floats("q"), bytes("k"), bytes("v"), floats("k_scales"), floats("v_scales"), value_role("counts", kInt64)},
                      .outputs = {floats("y")},
                      .attributes = {integer_attribute("is_causal", 0), integer_attribute("left_window_size", -1),
                                     optional_attribute("scale", AttributeKind::real), real_attribute("softcap", 0)},
                      .min_rank = 4,
                      .max_rank = 4},
           .shape = infer_quantized_attention_shape,
           .lower = lower_quantized_attention,
           .flop = [](const LowerContext& node) { return count_attention_flops(node, node.input(1).shape[2]); },
           .strides = StrideSupport::any_in,
           .epilogue = true},
          // Returns zeros, then the first `past` rows of the cache, then the new rows; the result has the cache's capacity.
          {.name = "pumice::JoinedRows",
           .skeleton = KernelKind::index_map,
           .schema = {.inputs = {value_role("cache", kFloats | make_dtype_set(DType::int8)), floats("rows"), value_role("past", kInt64),
                                 optional_floats("scales")},
                      .outputs = {floats("y")},
                      .min_rank = 4,
                      .max_rank = 4},
           .shape = infer_left_padded_cache_shape,
           .lower = lower_left_padded_cache,
           .strides = StrideSupport::any_in,
           .layout = {.permuted_inputs = make_input_mask(1)}}};
}

}  // namespace pumice

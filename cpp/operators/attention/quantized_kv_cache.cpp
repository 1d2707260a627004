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

// Inputs and outputs of both cache operators.
struct CacheStore {
  enum : size_t { q, k, v, past_keys, past_values, past_key_scales, past_value_scales, firsts, cosines, sines, places };
  enum : size_t { turned, keys, values, key_scales, value_scales };
};
struct CacheRead {
  enum : size_t { q, k, v, k_scales, v_scales, counts };
};

constexpr int64_t kBytesInWord = 4;  // number of int8 elements per word

void check_quantized(const ShapeContext& node, size_t keys, size_t values, size_t key_scales, size_t value_scales) {
  const Shape& shape = node.input(keys).shape;
  if (shape.size() != 4 || node.input(values).shape != shape)
    node.fail("caches of one shape [batch, heads, room, size] expected; given " + to_string(shape) + " and " +
              to_string(node.input(values).shape));
  check_bytes(node, keys);
  for (const size_t scales : {key_scales, value_scales}) check_scales(node, keys, scales);
}

void check_tables(const ShapeContext& node) {
  const Shape& q = node.input(CacheStore::q).shape;
  if (!node.has(CacheStore::sines) || !node.has(CacheStore::places)) node.fail("cos_cache, sin_cache and position_ids are given together");
  const int64_t given = node.attributes().integer("rotary_embedding_dim"), turned = given == 0 ? q[3] : given;
  if (turned % 2 != 0 || turned < 0 || turned > q[3])
    node.fail(std::to_string(turned) + " elements to turn of heads of " + std::to_string(q[3]) + "; an even number of them expected");
  for (const size_t table : {CacheStore::cosines, CacheStore::sines})
    if (node.input(table).shape.size() != 2 || node.input(table).shape[1] != turned / 2)
      node.fail("a table of shape " + to_string(node.input(table).shape) + " for " + std::to_string(turned) + " elements to turn");
  if (node.input(CacheStore::places).shape != Shape{q[0], q[2]})
    node.fail("position_ids of shape " + to_string(Shape{q[0], q[2]}) + " expected; given " +
              to_string(node.input(CacheStore::places).shape));
}

// Number of invocations that share a row, and of vec4s per invocation.
struct RowTeam {
  int64_t members, held;
  Macros macros;
};

RowTeam team_of_row(const LowerContext& node, int64_t size) {
  const bool lanes = node.prefers_lanes();
  const int64_t members = lanes ? 8 : 32, held = ceil_div(size, members * kBytesInWord);
  return {members,
          held,
          {{"TEAM", std::to_string(members) + "u"},
           {"HELD", std::to_string(held) + "u"},
           {"LANES", lanes ? "1" : "0"},
           {"SUBGROUP", std::to_string(node.subgroup())}}};
}

// Dequantises the keys or values in use.
Heads unpacked_cache(LowerContext& node, const Attention& a, const Heads& bytes, const Operand& scales) {
  const int64_t rows = bytes.batch() * bytes.heads() * bytes.rows(), words = rows * bytes.size() / kBytesInWord;
  const Shape shape{bytes.sizes.begin(), bytes.sizes.end()};
  const Operand floats = node.temporary(buffer_size(node.float_dtype, shape));
  StepBuilder step(node.kernel("dequantize_kv_cache.comp", node.float_dtype));
  step.bind("x", bytes.operand).bind("scales", scales).bind("counts", *a.counts).bind("y", floats);
  step.set("words", words).set("words_of_row", bytes.size() / kBytesInWord).set("room", bytes.rows()).set("heads", bytes.heads());
  if (words > 0) node.add(step.threads(static_cast<uint64_t>(words)).build());
  return heads_of(node, TensorDesc(node.float_dtype, shape), floats);
}

}  // namespace

void check_bytes(const ShapeContext& node, size_t cache) {
  const int64_t size = node.input(cache).shape[3];
  if (size % kBytesInWord != 0 || size == 0)
    node.fail("caches of int8 with heads of a multiple of 4 elements expected; given " + std::to_string(size));
}

void check_scales(const ShapeContext& node, size_t cache, size_t scales) {
  const Shape& shape = node.input(cache).shape;
  if (node.input(scales).shape != Shape{shape[0], shape[1], shape[2]})
    node.fail("scales of shape " + to_string(Shape{shape[0], shape[1], shape[2]}) + " expected; given " +
              to_string(node.input(scales).shape));
}

Heads cache_bytes(LowerContext& node, size_t i) {
  const TensorDesc& x = node.input(i);
  Operand operand = dense_input(node, i);
  if (phase_of(node, operand) != 0) {
    const Operand copy = node.temporary(buffer_size(x.dtype, x.shape));
    add_strided_copy(node, x.dtype, {x.shape, {x.strides, packed_strides(x.shape)}}, {operand}, {copy});
    operand = copy;
  }
  return heads_of(node, TensorDesc(x.dtype, x.shape), operand);
}

void shape_of_quantized_caches(ShapeContext& node) {
  const Shape &q = node.input(CacheStore::q).shape, &k = node.input(CacheStore::k).shape, &v = node.input(CacheStore::v).shape,
              &keys = node.input(CacheStore::past_keys).shape;
  if (q.size() != 4 || v != k || k.size() != 4 || q[0] != k[0] || q[2] != k[2] || q[3] != k[3])
    node.fail("queries, keys and values of as many rows and as large heads expected; given " + to_string(q) + ", " + to_string(k) +
              " and " + to_string(v));
  check_quantized(node, CacheStore::past_keys, CacheStore::past_values, CacheStore::past_key_scales, CacheStore::past_value_scales);
  if (keys[0] != k[0] || keys[1] != k[1] || keys[3] != k[3] || keys[2] < k[2])
    node.fail("an update of shape " + to_string(k) + " for a cache of shape " + to_string(keys));
  if (node.input(CacheStore::firsts).shape != Shape{k[0]})
    node.fail("write_indices of shape " + to_string(Shape{k[0]}) + " expected; given " + to_string(node.input(CacheStore::firsts).shape));
  if (node.has(CacheStore::cosines)) check_tables(node);
  node.output(CacheStore::turned, node.input(CacheStore::q).dtype, q);
  for (size_t i = 0; i < 4; ++i)
    node.output(CacheStore::keys + i, node.input(CacheStore::past_keys + i).dtype, node.input(CacheStore::past_keys + i).shape);
}

void lower_quantized_caches(LowerContext& node) {
  if (node.output(CacheStore::keys).elements() == 0) return;
  for (size_t i = 0; i < 4; ++i) add_cache_copy(node, CacheStore::past_keys + i, CacheStore::keys + i);
  const Heads q = heads_of(node, node.input(CacheStore::q), node.in(CacheStore::q)),
              k = heads_of(node, node.input(CacheStore::k), node.in(CacheStore::k)),
              v = heads_of(node, node.input(CacheStore::v), node.in(CacheStore::v));
  const bool turns = node.has_input(CacheStore::cosines);
  const int64_t given = node.attributes->integer("rotary_embedding_dim"), turned = given == 0 ? q.size() : given;
  Macros macros = team_of_row(node, q.size()).macros;
  macros.emplace_back("TURNS", turns ? "1" : "0");
  macros.emplace_back("INTERLEAVED", node.attributes->integer("interleaved") != 0 ? "1" : "0");
  StepBuilder step(node.kernel("quantized_kv_cache.comp", node.float_dtype, macros));
  for (const auto& [name, heads] : {std::pair{"q", &q}, {"k", &k}, {"v", &v}}) {
    step.bind(name, heads->operand);
    set_strides(step, name, *heads);
  }
  if (turns) step.bind("cosines", dense_input(node, CacheStore::cosines)).bind("sines", dense_input(node, CacheStore::sines));
  if (turns) step.bind("places", dense_input(node, CacheStore::places));
  step.bind("firsts", dense_input(node, CacheStore::firsts)).bind("y", node.out(CacheStore::turned));
  step.bind("keys", node.out(CacheStore::keys)).bind("values", node.out(CacheStore::values));
  step.bind("key_scales", node.out(CacheStore::key_scales)).bind("value_scales", node.out(CacheStore::value_scales));
  const int64_t lines = q.batch() * (q.heads() + 2 * k.heads()) * q.rows();
  step.set("lines", lines).set("heads", q.heads()).set("groups", k.heads()).set("rows", q.rows()).set("size", q.size());
  step.set("turned", turns ? turned : 0).set("table_rows", turns ? node.input(CacheStore::cosines).shape[0] : 0);
  step.set("room", node.output(CacheStore::keys).shape[2]);
  if (lines > 0) node.add(step.groups(static_cast<uint64_t>(lines)).build());
}

void shape_of_quantized_attention(ShapeContext& node) {
  const Shape &q = node.input(CacheRead::q).shape, &k = node.input(CacheRead::k).shape;
  check_quantized(node, CacheRead::k, CacheRead::v, CacheRead::k_scales, CacheRead::v_scales);
  if (q.size() != 4 || q[0] != k[0] || q[3] != k[3] || (k[1] == 0 ? q[1] != 0 : q[1] % k[1] != 0))
    node.fail("queries of a multiple of the keys' heads, of as many elements, expected; given " + to_string(q) + " and " + to_string(k));
  if (node.input(CacheRead::counts).shape != Shape{k[0]})
    node.fail("counts of shape " + to_string(Shape{k[0]}) + " expected; given " + to_string(node.input(CacheRead::counts).shape));
  node.output(0, node.input(CacheRead::q).dtype, q);
}

// Few queries read int8 directly. Many queries read each key so often that dequantising once is faster.
void lower_quantized_attention(LowerContext& node) {
  const Attributes& attributes = *node.attributes;
  Attention a{heads_of(node, node.input(CacheRead::q), node.in(CacheRead::q)), cache_bytes(node, CacheRead::k),
              cache_bytes(node, CacheRead::v), heads_of(node, node.output(0), node.out(0))};
  if (node.output(0).elements() == 0) return;
  a.counts = dense_input(node, CacheRead::counts);
  a.scale = attributes.real("scale", 1 / std::sqrt(static_cast<double>(a.q.size())));
  a.softcap = attributes.real("softcap", 0);
  if (const int64_t before = attributes.integer("left_window_size", -1); before >= 0) a.first = -before;
  if (attributes.integer("is_causal", 0) != 0) a.last = 0;
  const Operand key_scales = dense_input(node, CacheRead::k_scales), value_scales = dense_input(node, CacheRead::v_scales);
  if (reads_bytes(node, a)) {
    a.k_scales = key_scales, a.v_scales = value_scales;
  } else {
    a.k = unpacked_cache(node, a, a.k, key_scales);
    a.v = unpacked_cache(node, a, a.v, value_scales);
  }
  add_attention(node, a);
}

Rows quantized_cache_rows() {
  const auto floats = [](std::string_view name) { return value(name, kFloats); };
  const auto optional_floats = [](std::string_view name) { return optional_value(name, kFloats); };
  const auto bytes = [](std::string_view name) { return value(name, set_of(DType::int8)); };
  return {// applies RotaryEmbedding to queries and keys, if there are tables, and quantises keys and values into int8 caches
          {.name = "pumice::QuantizedCaches",
           .skeleton = Skeleton::index_map,
           .schema = {.inputs = {floats("q"), floats("k"), floats("v"), bytes("past_keys"), bytes("past_values"), floats("past_key_scales"),
                                 floats("past_value_scales"), value("write_indices", kInt64), optional_floats("cos_cache"),
                                 optional_floats("sin_cache"), optional_value("position_ids", kInt64)},
                      .outputs = {floats("y"), bytes("present_keys"), bytes("present_values"), floats("present_key_scales"),
                                  floats("present_value_scales")},
                      .attributes = {integer("interleaved", 0), integer("rotary_embedding_dim", 0)},
                      .min_rank = 4,
                      .max_rank = 4},
           .shape = shape_of_quantized_caches,
           .lower = lower_quantized_caches,
           .strides = RowStrides::any_in,
           .permuted_inputs = host_bits(CacheStore::q, CacheStore::k, CacheStore::v)},
          // Attention over int8 caches with `counts` rows in use.
          {.name = "pumice::QuantizedAttention",
           .skeleton = Skeleton::contraction,
           .schema = {.inputs = {floats("q"), bytes("k"), bytes("v"), floats("k_scales"), floats("v_scales"), value("counts", kInt64)},
                      .outputs = {floats("y")},
                      .attributes = {integer("is_causal", 0), integer("left_window_size", -1), optional("scale", AttributeKind::real),
                                     real("softcap", 0)},
                      .min_rank = 4,
                      .max_rank = 4},
           .shape = shape_of_quantized_attention,
           .lower = lower_quantized_attention,
           .flop = [](const LowerContext& node) { return attention_flop(node, node.input(1).shape[2]); },
           .strides = RowStrides::any_in,
           .epilogue = true},
          // Concatenates zeros, the first `past` rows of a cache and the new rows; the result has the cache's capacity.
          {.name = "pumice::JoinedRows",
           .skeleton = Skeleton::index_map,
           .schema = {.inputs = {value("cache", kFloats | set_of(DType::int8)), floats("rows"), value("past", kInt64),
                                 optional_floats("scales")},
                      .outputs = {floats("y")},
                      .min_rank = 4,
                      .max_rank = 4},
           .shape = shape_of_joined_rows,
           .lower = lower_joined_rows,
           .strides = RowStrides::any_in,
           .permuted_inputs = host_bits(1)}};
}

}  // namespace pumice

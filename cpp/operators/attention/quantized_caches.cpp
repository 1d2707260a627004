// Caches of int8: each row of a head is stored as whole numbers from -127 to 127, times a scale of its own.
#include "operators/attention/quantized_caches.h"

#include <algorithm>
#include <cmath>

#include "core/rounding.h"
#include "operators/attention/attention.h"
#include "operators/means/strided.h"
#include "operators/row/operator_table.h"
#include "operators/row/row_parts.h"

namespace pumice {
namespace {

enum CachesInput : size_t { kQ, kK, kV, kPastKeys, kPastValues, kPastKeyScales, kPastValueScales, kFirsts, kCosines, kSines, kPlaces };
enum CachesOutput : size_t { kTurned, kKeys, kValues, kKeyScales, kValueScales };
enum AttentionInput : size_t { kQueries, kKeyRows, kValueRows, kScalesOfKeys, kScalesOfValues, kCounts };

constexpr int64_t kInWord = 4;  // elements of int8

void check_sizes(const ShapeContext& node, size_t keys, size_t values, size_t key_scales, size_t value_scales) {
  const Shape& shape = node.input(keys).shape;
  if (shape.size() != 4 || node.input(values).shape != shape)
    node.fail("caches of one shape [batch, heads, room, size] expected; given " + to_string(shape) + " and " +
              to_string(node.input(values).shape));
  if (shape[3] % kInWord != 0 || shape[3] == 0)
    node.fail("caches of int8 with heads of a multiple of 4 elements expected; given " + std::to_string(shape[3]));
  for (const size_t scales : {key_scales, value_scales})
    if (node.input(scales).shape != Shape{shape[0], shape[1], shape[2]})
      node.fail("scales of shape " + to_string(Shape{shape[0], shape[1], shape[2]}) + " expected; given " +
                to_string(node.input(scales).shape));
}

void check_rotation(const ShapeContext& node) {
  const Shape& q = node.input(kQ).shape;
  if (!node.has(kSines) || !node.has(kPlaces)) node.fail("cos_cache, sin_cache and position_ids are given together");
  const int64_t given = node.attributes().integer("rotary_embedding_dim"), turned = given == 0 ? q[3] : given;
  if (turned % 2 != 0 || turned < 0 || turned > q[3])
    node.fail(std::to_string(turned) + " elements to turn of heads of " + std::to_string(q[3]) + "; an even number of them expected");
  for (const size_t table : {kCosines, kSines})
    if (node.input(table).shape.size() != 2 || node.input(table).shape[1] != turned / 2)
      node.fail("a table of shape " + to_string(node.input(table).shape) + " for " + std::to_string(turned) + " elements to turn");
  if (node.input(kPlaces).shape != Shape{q[0], q[2]})
    node.fail("position_ids of shape " + to_string(Shape{q[0], q[2]}) + " expected; given " + to_string(node.input(kPlaces).shape));
}

// Copies a cache, which is left out where the output is the memory of the input.
void add_copy(LowerContext& node, size_t from, size_t to) {
  const TensorDesc& cache = node.output(to);
  const auto words = static_cast<int64_t>((cache.bytes() + 3) / 4);
  StepBuilder copy(node.kernel("copy_words.comp", DType::float32, {{"ELEMENT_BITS", std::to_string(bits(cache.dtype)) + "u"}}));
  copy.bind("x", dense_input(node, from)).bind("y", node.out(to)).set("words", words);
  node.add(copy.threads(static_cast<uint64_t>((words + 3) / 4)).build());
}

// The invocations that share a row, and how many fours of its elements each of them has.
struct Team {
  int64_t members, held;
  Macros macros;
};

Team team_of(const LowerContext& node, int64_t size) {
  const bool lanes = node.prefers_lanes();
  const int64_t members = lanes ? 8 : 32, held = ceil_div(size, members * kInWord);
  return {members,
          held,
          {{"TEAM", std::to_string(members) + "u"},
           {"HELD", std::to_string(held) + "u"},
           {"LANES", lanes ? "1" : "0"},
           {"SUBGROUP", std::to_string(node.subgroup())}}};
}

// Keys or values of int8 from a boundary of 16 bytes on.
Heads bytes_of(LowerContext& node, size_t i) {
  const TensorDesc& x = node.input(i);
  Operand operand = dense_input(node, i);
  if (phase_of(node, operand) != 0) {
    const Operand copy = node.temporary(buffer_size(x.dtype, x.shape));
    add_strided_copy(node, x.dtype, {x.shape, {x.strides, packed_strides(x.shape)}}, {operand}, {copy});
    operand = copy;
  }
  return heads_of(node, TensorDesc(x.dtype, x.shape), operand);
}

// Has the keys or values that count unpacked to floats.
Heads unpacked(LowerContext& node, const Attention& a, const Heads& bytes, const Operand& scales) {
  const int64_t rows = bytes.batch() * bytes.heads() * bytes.rows(), words = rows * bytes.size() / kInWord;
  const Shape shape{bytes.sizes.begin(), bytes.sizes.end()};
  const Operand floats = node.temporary(buffer_size(node.float_dtype, shape));
  StepBuilder step(node.kernel("quantized_rows.comp", node.float_dtype));
  step.bind("x", bytes.operand).bind("scales", scales).bind("counts", *a.counts).bind("y", floats);
  step.set("words", words).set("words_of_row", bytes.size() / kInWord).set("room", bytes.rows()).set("heads", bytes.heads());
  if (words > 0) node.add(step.threads(static_cast<uint64_t>(words)).build());
  return heads_of(node, TensorDesc(node.float_dtype, shape), floats);
}

}  // namespace

void shape_of_quantized_caches(ShapeContext& node) {
  const Shape &q = node.input(kQ).shape, &k = node.input(kK).shape, &v = node.input(kV).shape, &keys = node.input(kPastKeys).shape;
  if (q.size() != 4 || v != k || k.size() != 4 || q[0] != k[0] || q[2] != k[2] || q[3] != k[3])
    node.fail("queries, keys and values of as many rows and as large heads expected; given " + to_string(q) + ", " + to_string(k) +
              " and " + to_string(v));
  check_sizes(node, kPastKeys, kPastValues, kPastKeyScales, kPastValueScales);
  if (keys[0] != k[0] || keys[1] != k[1] || keys[3] != k[3] || keys[2] < k[2])
    node.fail("an update of shape " + to_string(k) + " for a cache of shape " + to_string(keys));
  if (node.input(kFirsts).shape != Shape{k[0]})
    node.fail("write_indices of shape " + to_string(Shape{k[0]}) + " expected; given " + to_string(node.input(kFirsts).shape));
  if (node.has(kCosines)) check_rotation(node);
  node.output(kTurned, node.input(kQ).dtype, q);
  for (size_t i = 0; i < 4; ++i) node.output(kKeys + i, node.input(kPastKeys + i).dtype, node.input(kPastKeys + i).shape);
}

void lower_quantized_caches(LowerContext& node) {
  if (node.output(kKeys).elements() == 0) return;
  for (size_t i = 0; i < 4; ++i) add_copy(node, kPastKeys + i, kKeys + i);
  const Heads q = heads_of(node, node.input(kQ), node.in(kQ)), k = heads_of(node, node.input(kK), node.in(kK)),
              v = heads_of(node, node.input(kV), node.in(kV));
  const bool turns = node.has_input(kCosines);
  const int64_t given = node.attributes->integer("rotary_embedding_dim"), turned = given == 0 ? q.size() : given;
  Macros macros = team_of(node, q.size()).macros;
  macros.emplace_back("TURNS", turns ? "1" : "0");
  macros.emplace_back("INTERLEAVED", node.attributes->integer("interleaved") != 0 ? "1" : "0");
  StepBuilder step(node.kernel("quantized_caches.comp", node.float_dtype, macros));
  for (const auto& [name, heads] : {std::pair{"q", &q}, {"k", &k}, {"v", &v}}) {
    step.bind(name, heads->operand);
    set_strides(step, name, *heads);
  }
  if (turns) step.bind("cosines", dense_input(node, kCosines)).bind("sines", dense_input(node, kSines));
  if (turns) step.bind("places", dense_input(node, kPlaces));
  step.bind("firsts", dense_input(node, kFirsts)).bind("y", node.out(kTurned));
  step.bind("keys", node.out(kKeys)).bind("values", node.out(kValues));
  step.bind("key_scales", node.out(kKeyScales)).bind("value_scales", node.out(kValueScales));
  const int64_t lines = q.batch() * (q.heads() + 2 * k.heads()) * q.rows();
  step.set("lines", lines).set("heads", q.heads()).set("groups", k.heads()).set("rows", q.rows()).set("size", q.size());
  step.set("turned", turns ? turned : 0).set("table_rows", turns ? node.input(kCosines).shape[0] : 0);
  step.set("room", node.output(kKeys).shape[2]);
  if (lines > 0) node.add(step.groups(static_cast<uint64_t>(lines)).build());
}

void shape_of_quantized_attention(ShapeContext& node) {
  const Shape &q = node.input(kQueries).shape, &k = node.input(kKeyRows).shape;
  check_sizes(node, kKeyRows, kValueRows, kScalesOfKeys, kScalesOfValues);
  if (q.size() != 4 || q[0] != k[0] || q[3] != k[3] || (k[1] == 0 ? q[1] != 0 : q[1] % k[1] != 0))
    node.fail("queries of a multiple of the keys' heads, of as many elements, expected; given " + to_string(q) + " and " + to_string(k));
  if (node.input(kCounts).shape != Shape{k[0]})
    node.fail("counts of shape " + to_string(Shape{k[0]}) + " expected; given " + to_string(node.input(kCounts).shape));
  node.output(0, node.input(kQueries).dtype, q);
}

// A few rows read the bytes as they are. Many rows read each key so often that all of them are unpacked once before.
void lower_quantized_attention(LowerContext& node) {
  const Attributes& attributes = *node.attributes;
  Attention a{heads_of(node, node.input(kQueries), node.in(kQueries)), bytes_of(node, kKeyRows), bytes_of(node, kValueRows),
              heads_of(node, node.output(0), node.out(0))};
  if (node.output(0).elements() == 0) return;
  a.counts = dense_input(node, kCounts);
  a.scale = attributes.real("scale", 1 / std::sqrt(static_cast<double>(a.q.size())));
  a.softcap = attributes.real("softcap", 0);
  if (const int64_t before = attributes.integer("left_window_size", -1); before >= 0) a.first = -before;
  if (attributes.integer("is_causal", 0) != 0) a.last = 0;
  const Operand key_scales = dense_input(node, kScalesOfKeys), value_scales = dense_input(node, kScalesOfValues);
  if (reads_bytes(node, a)) {
    a.k_scales = key_scales, a.v_scales = value_scales;
  } else {
    a.k = unpacked(node, a, a.k, key_scales);
    a.v = unpacked(node, a, a.v, value_scales);
  }
  add_attention(node, a);
}

Rows quantized_cache_rows() {
  const auto floats = [](std::string_view name) { return value(name, kFloats); };
  const auto optional_floats = [](std::string_view name) { return optional_value(name, kFloats); };
  const auto bytes = [](std::string_view name) { return value(name, set_of(DType::int8)); };
  return {// RotaryEmbedding of queries and keys, where there are tables, and keys and values into caches of int8.
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
           .permuted_inputs = host_bits(kQ, kK, kV)},
          // Attention over such caches, of which `counts` rows are in use.
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
           .strides = RowStrides::any_in,
           .epilogue = true}};
}

}  // namespace pumice

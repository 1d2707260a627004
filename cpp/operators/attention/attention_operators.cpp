// Operator rows for Attention.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "operators/attention/attention.h"
#include "operators/attention/lowerings.h"
#include "operators/common/split_axes.h"
#include "operators/common/strided_copy.h"
#include "operators/geometry/index_bounds.h"
#include "operators/table/flop.h"
#include "operators/table/row_builders.h"

namespace pumice {
namespace {

// Inputs and outputs of the ONNX operator.
enum AttentionInput : size_t { kQ, kK, kV, kMask, kPastKey, kPastValue, kKvLengths };
enum AttentionOutput : size_t { kY, kPresentKey, kPresentValue, kScores };

// Sizes of q, k or v: [batch, heads, seq, size], or [batch, seq, heads * size] with the number of heads as an attribute.
struct HeadSizes {
  int64_t batch, heads, rows, size;
};

HeadSizes parse_head_sizes(const Shape& shape, const Attributes& attributes, std::string_view num_heads_attribute) {
  if (shape.size() == 4) return {shape[0], shape[1], shape[2], shape[3]};
  const int64_t heads = attributes.integer(num_heads_attribute);
  return {shape[0], heads, shape[1], shape[2] / heads};
}

void check_heads(const ShapeContext& node, AttentionInput input, std::string_view num_heads_attribute) {
  const Shape& shape = node.input(input).shape;
  const std::string description = "input " + std::to_string(input) + " of shape " + to_string(shape);
  if (shape.size() != node.input(kQ).shape.size()) node.fail(description + " with an input 0 of shape " + to_string(node.input(kQ).shape));
  if (shape.size() == 4) return;
  const int64_t heads = node.attributes().integer(num_heads_attribute, 0);
  if (heads < 1 || shape[2] % heads != 0)
    node.fail(description + " in " + std::to_string(heads) + " heads ('" + std::string(num_heads_attribute) + "')");
}

void check_shape(const ShapeContext& node, AttentionInput input, const Shape& expected) {
  if (node.has(input) && node.input(input).shape != expected)
    node.fail("input " + std::to_string(input) + ": expected shape " + to_string(expected) + "; given " +
              to_string(node.input(input).shape));
}

int64_t get_past_length(const ShapeContext& node) {
  if (node.has(kPastKey) != node.has(kPastValue)) node.fail("past_key and past_value must be given together");
  if (node.has(kPastKey) && node.has(kKvLengths)) node.fail("nonpad_kv_seqlen and past_key are given together: expected one of them");
  if (!node.has(kPastKey)) return 0;
  if (node.input(kPastKey).rank() != 4) node.fail("expected past_key of rank 4; given " + to_string(node.input(kPastKey).shape));
  return node.input(kPastKey).shape[2];
}

// The mask must broadcast to the scores, but its last axis may be shorter: keys past its end are masked out.
void check_mask(const ShapeContext& node, const Shape& scores) {
  if (!node.has(kMask)) return;
  const Shape& mask = node.input(kMask).shape;
  const auto fits = [&] {
    if (mask.empty() || mask.size() > 4 || mask.back() > scores[3]) return false;
    for (size_t back = 1; back < mask.size(); ++back) {
      const int64_t size = mask[mask.size() - 1 - back];
      if (size != 1 && size != scores[3 - back]) return false;
    }
    return true;
  };
  if (!fits()) node.fail("a mask of shape " + to_string(mask) + " for scores of shape " + to_string(scores));
}

void infer_attention_shape(ShapeContext& node) {
  check_heads(node, kQ, "q_num_heads");
  check_heads(node, kK, "kv_num_heads");
  check_heads(node, kV, "kv_num_heads");
  const HeadSizes q = parse_head_sizes(node.input(kQ).shape, node.attributes(), "q_num_heads"),
                  k = parse_head_sizes(node.input(kK).shape, node.attributes(), "kv_num_heads"),
                  v = parse_head_sizes(node.input(kV).shape, node.attributes(), "kv_num_heads");
  const auto shapes = [&] {
    return to_string(node.input(kQ).shape) + ", " + to_string(node.input(kK).shape) + " and " + to_string(node.input(kV).shape);
  };
  if (q.batch != k.batch || k.batch != v.batch || k.heads != v.heads || k.rows != v.rows || q.size != k.size)
    node.fail("queries, keys and values do not match: " + shapes());
  if (k.heads == 0 ? q.heads != 0 : q.heads % k.heads != 0)
    node.fail("the number of query heads must be a multiple of the number of key heads: " + shapes());
  const int64_t past = get_past_length(node), keys = checked_add(past, k.rows, "keys");
  check_shape(node, kPastKey, {k.batch, k.heads, past, k.size});
  check_shape(node, kPastValue, {k.batch, k.heads, past, v.size});
  check_shape(node, kKvLengths, {k.batch});
  const Shape scores{q.batch, q.heads, q.rows, keys};
  check_mask(node, scores);
  const bool flat = node.input(kQ).rank() == 3;
  node.output(kY, node.input(kQ).dtype, flat ? Shape{q.batch, q.rows, q.heads * v.size} : Shape{q.batch, q.heads, q.rows, v.size});
  node.output(kPresentKey, node.input(kK).dtype, {k.batch, k.heads, keys, k.size});
  node.output(kPresentValue, node.input(kV).dtype, {k.batch, k.heads, keys, v.size});
  node.output(kScores, node.input(kQ).dtype, scores);
}

// Concatenates past and new keys (or values). Writes the result to output `present` if the node has that output.
HeadTensor concat_past_kv(LowerContext& node, AttentionInput input, AttentionInput past, AttentionOutput present) {
  const TensorDesc new_desc = split_into_heads(node.input(input), node.attributes->integer("kv_num_heads"));
  if (!node.has_input(past) && !node.has_output(present)) return view_heads(node, new_desc, node.input_operand(input));
  Shape shape = new_desc.shape;
  const int64_t before = node.has_input(past) ? node.input(past).shape[2] : 0;
  shape[2] += before;
  const TensorDesc present_desc(new_desc.dtype, shape);
  const Operand target = node.has_output(present) ? node.output_operand(present) : node.add_temporary(present_desc.bytes());
  const bool owns_words = shape[3] * bits(present_desc.dtype) % 32 == 0;
  if (before > 0)
    add_strided_copy(node, present_desc.dtype, {node.input(past).shape, {node.input(past).strides, present_desc.strides}},
                     {node.input_operand(past)}, {.operand = target, .owns_words = owns_words});
  add_strided_copy(node, present_desc.dtype, {new_desc.shape, {new_desc.strides, present_desc.strides}}, {node.input_operand(input)},
                   {.operand = target, .first = before * shape[3], .owns_words = owns_words});
  return view_heads(node, present_desc, target);
}

AttentionMask make_mask(const LowerContext& node, const TensorDesc& desc) {
  AttentionMask mask{node.input_operand(kMask), desc.dtype == DType::bool_};
  mask.keys = desc.shape.back();
  const size_t rank = desc.shape.size();
  for (size_t i = 0; i < rank; ++i) mask.strides[4 - rank + i] = desc.shape[i] == 1 ? 0 : desc.strides[i];
  return mask;
}

// Sets the range of keys that a query attends to, relative to the index of the query. `past`: number of past keys.
void set_visible_key_range(AttentionParams& a, const Attributes& attributes, int64_t past) {
  const int64_t before = attributes.integer("left_window_size", -1),
                after = attributes.integer("is_causal", 0) != 0 ? 0 : attributes.integer("right_window_size", -1);
  if (before >= 0) a.first = past - before;
  if (after >= 0) a.last = past + after;
}

}  // namespace

void lower_attention(LowerContext& node) {
  const Attributes& attributes = *node.attributes;
  AttentionParams a{view_heads(node, split_into_heads(node.input(kQ), attributes.integer("q_num_heads")), node.input_operand(kQ)),
                    concat_past_kv(node, kK, kPastKey, kPresentKey), concat_past_kv(node, kV, kPastValue, kPresentValue),
                    view_heads(node, split_into_heads(node.output(kY), attributes.integer("q_num_heads")), node.output_operand(kY))};
  if (node.has_input(kMask)) a.mask = make_mask(node, node.input(kMask));
  if (node.has_input(kKvLengths)) a.kv_lengths = get_contiguous_input(node, kKvLengths);
  a.scale = attributes.real("scale", 1 / std::sqrt(static_cast<double>(a.q.size())));
  a.softcap = attributes.real("softcap", 0);
  set_visible_key_range(a, attributes, node.has_input(kPastKey) ? node.input(kPastKey).shape[2] : 0);
  if (!node.has_output(kScores)) return add_attention(node, a);
  add_attention(node, a, static_cast<ScoreStage>(attributes.integer("qk_matmul_output_mode", 0)), node.output_operand(kScores));
}

namespace {

void infer_rotary_embedding_shape(ShapeContext& node) {
  const Shape& x = node.input(0).shape;
  const int64_t count = node.attributes().integer("num_heads"), requested_dim = node.attributes().integer("rotary_embedding_dim");
  const bool flat = x.size() == 3;
  if (flat && (count < 1 || x[2] % count != 0))
    node.fail("rows of shape " + to_string(x) + " in " + std::to_string(count) + " heads ('num_heads')");
  const int64_t batch = x[0], rows = x[flat ? 1 : 2], size = flat ? x[2] / count : x[3],
                rotary_dim = requested_dim == 0 ? size : requested_dim;
  if (size % 2 != 0 || rotary_dim % 2 != 0 || rotary_dim < 0 || rotary_dim > size)
    node.fail(std::to_string(rotary_dim) + " elements to rotate in heads of " + std::to_string(size) + "; expected even numbers");
  if (node.has(3) && node.input(3).shape != Shape{batch, rows})
    node.fail("expected position_ids of shape " + to_string(Shape{batch, rows}) + "; given " + to_string(node.input(3).shape));
  for (size_t i = 1; i < 3; ++i) {
    const Shape& table = node.input(i).shape;
    const bool fits = node.has(3) ? table.size() == 2 && table[1] == rotary_dim / 2 : table == Shape{batch, rows, rotary_dim / 2};
    if (!fits)
      node.fail("input " + std::to_string(i) + " of shape " + to_string(table) + " for " + std::to_string(rotary_dim) +
                " elements to rotate in " + to_string(x));
  }
  infer_shape_like_input(node);
}

// Inputs of pumice::Attention after the mask.
enum FusedAttentionInput : size_t { kKeySizes = kMask + 1, kValueSizes };

Shape permute_shape(const Shape& shape, const std::vector<int64_t>& axes) {
  Shape result;
  for (const int64_t axis : axes) result.push_back(shape[static_cast<size_t>(axis)]);
  return result;
}

std::vector<int64_t> get_permutation(const ShapeContext& node, std::string_view name, size_t rank) {
  const auto axes = node.attributes().integers(name);
  if (axes.size() != rank || normalize_axes(node, axes, rank).size() != rank)
    node.fail("'" + std::string(name) + "': expected " + std::to_string(rank) + " axes");
  return axes;
}

// Checks that the heads of k or v are repeated to match the number of heads of q, with all other sizes unchanged.
void check_repeated_heads(const ShapeContext& node, size_t input, Shape shape, int64_t heads) {
  if (!node.has(input)) return;
  shape[1] = heads;
  const auto repeats = node.get_host_integers(input);
  const bool fits = repeats.size() == shape.size() &&
                    std::ranges::equal(repeats, shape, [](int64_t a, int64_t b) { return a == b || a == -1 || a == 0; });
  if (!fits || std::ranges::count(repeats, -1) > 1)
    node.fail("heads of keys or values repeated to " + to_string(repeats) + "; expected " + to_string(shape) +
              " (without fusion, the graph runs as written)");
}

// The leading axes of q, k, v and the mask broadcast. With attribute `grouped`, they follow the rules of ONNX Attention instead.
void infer_fused_attention_shape(ShapeContext& node) {
  const size_t rank = node.input(kQ).shape.size();
  const auto permuted_shape = [&](AttentionInput input, std::string_view axes) {
    return permute_shape(node.input(input).shape, get_permutation(node, axes, rank));
  };
  const Shape q = permuted_shape(kQ, "q_axes"), k = permuted_shape(kK, "k_axes"), v = permuted_shape(kV, "v_axes");
  if (q.back() != k.back() || k[rank - 2] != v[rank - 2])
    node.fail("queries " + to_string(q) + ", keys " + to_string(k) + " and values " + to_string(v) + " do not match");
  if (node.attributes().integer("grouped", 0) != 0) {
    if (q[0] != k[0] || k[0] != v[0] || k[1] != v[1] || (k[1] == 0 ? q[1] != 0 : q[1] % k[1] != 0))
      node.fail("queries " + to_string(q) + ", keys " + to_string(k) + " and values " + to_string(v) + " do not match");
    const Shape scores{q[0], q[1], q[2], k[2]};
    check_mask(node, scores);
    if (node.has(kMask) && node.attributes().integer("short_mask", 0) == 0 && node.input(kMask).shape.back() != 1 &&
        node.input(kMask).shape.back() != k[2])
      node.fail("a mask of shape " + to_string(node.input(kMask).shape) + " for scores of shape " + to_string(scores));
    check_repeated_heads(node, kKeySizes, k, q[1]);
    check_repeated_heads(node, kValueSizes, v, q[1]);
    return node.output(kY, node.input(kQ).dtype, permute_shape({q[0], q[1], q[2], v[3]}, get_permutation(node, "y_axes", rank)));
  }
  const auto leading = [&](const Shape& shape) {
    return Shape(shape.begin(), shape.end() - std::min<std::ptrdiff_t>(2, std::ssize(shape)));
  };
  Shape y;
  try {
    y = broadcast_shape(broadcast_shape(leading(q), leading(k)), leading(v));
    if (node.has(kMask)) {
      y = broadcast_shape(y, leading(node.input(kMask).shape));
      (void)compute_broadcast_strides(node.input(kMask).shape, node.input(kMask).strides, [&] {
        Shape scores = y;
        scores.insert(scores.end(), {q[rank - 2], k[rank - 2]});
        return scores;
      }());
    }
  } catch (const GraphError& error) {
    node.fail(error.what());
  }
  y.insert(y.end(), {q[rank - 2], v.back()});
  node.output(kY, node.input(kQ).dtype, permute_shape(y, get_permutation(node, "y_axes", rank)));
}

// Broadcasts a size of 1 to `size`.
void expand_axis(HeadTensor& heads, size_t axis, int64_t size) {
  if (heads.sizes[axis] == size) return;
  heads.sizes[axis] = size, heads.strides[axis] = 0;
}

// Attention can be split along the batch and, unless query heads share KV heads, along the heads.
void append_attention_split_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  constexpr size_t kMask = 3, kPastKey = 4, kKvLengths = 6;
  const bool has_heads = node.input(kData).rank() == 4 && node.input(1).rank() == 4 && node.input(kData).shape[1] == node.input(1).shape[1];
  for (int axis = 0; axis < (has_heads ? 2 : 1); ++axis) {
    SplitAxis& split = axes.emplace_back(make_split_axis(node, axis));
    for (size_t i = 1; i < node.inputs.size(); ++i)
      if (node.has_input(i))
        split.inputs[i] = i == kMask ? find_broadcast_axis(node.input(i), axis, 4) : i == kKvLengths && axis != 0 ? kNotSplit : axis;
  }
  // The queries can be split if all of them attend to the same keys.
  const Attributes& attributes = *node.attributes;
  const bool limits = attributes.integer("is_causal", 0) != 0 || attributes.integer("left_window_size", -1) >= 0 ||
                      attributes.integer("right_window_size", -1) >= 0;
  if (limits || node.has_input(kPastKey) || node.has_output(1) || node.has_output(2)) return;
  const int row_axis = node.input(kData).rank() - 2;
  SplitAxis& split = axes.emplace_back(make_split_axis(node, row_axis));
  if (node.has_output(3)) split.outputs[3] = 2;
  if (node.has_input(kMask)) split.inputs[kMask] = find_broadcast_axis(node.input(kMask), 2, 4);
}

uint64_t count_onnx_attention_flops(const LowerContext& node) {
  const Shape& keys = node.input(kK).shape;
  return count_attention_flops(node, keys[keys.size() - 2] + (node.has_input(kPastKey) ? node.input(kPastKey).shape[2] : 0));
}

uint64_t count_fused_attention_flops(const LowerContext& node) {
  const std::vector<int64_t> axes = node.attributes->integers("k_axes");
  return count_attention_flops(node, node.input(kK).shape[static_cast<size_t>(axes[axes.size() - 2])]);
}

// Fused attention can be split along all axes except the last two (rows and elements).
void append_fused_attention_split_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const Attributes& attributes = *node.attributes;
  if (attributes.integer("grouped") != 0 || attributes.integer("short_mask") != 0) return;
  const std::vector<int64_t> q = attributes.integers("q_axes"), k = attributes.integers("k_axes"), v = attributes.integers("v_axes"),
                             y = attributes.integers("y_axes");
  if (k.size() != q.size() || v.size() != q.size() || y.size() != q.size()) return;
  const auto axis_of = [](const std::vector<int64_t>& order, size_t position) { return static_cast<int>(order[position]); };
  for (size_t position = 0; position + 2 < q.size(); ++position) {
    SplitAxis& split = axes.emplace_back(make_split_axis(node, axis_of(q, position)));
    split.inputs[1] = axis_of(k, position), split.inputs[2] = axis_of(v, position);
    split.outputs = {axis_of(y, position)};
    if (node.has_input(3)) split.inputs[3] = find_broadcast_axis(node.input(3), static_cast<int>(position), static_cast<int>(q.size()));
  }
}

}  // namespace

void lower_fused_attention(LowerContext& node) {
  const Attributes& attributes = *node.attributes;
  const auto view = [&](AttentionInput input, std::string_view axes) {
    return view_heads(node, node.input(input), node.input_operand(input), attributes.integers(axes));
  };
  const auto y_axes = attributes.integers("y_axes");
  std::vector<int64_t> y_perm(y_axes.size());
  for (size_t i = 0; i < y_axes.size(); ++i) y_perm[static_cast<size_t>(y_axes[i])] = static_cast<int64_t>(i);
  AttentionParams a{view(kQ, "q_axes"), view(kK, "k_axes"), view(kV, "v_axes"),
                    view_heads(node, node.output(kY), node.output_operand(kY), y_perm)};
  const bool grouped = attributes.integer("grouped", 0) != 0;
  for (HeadTensor* heads : {&a.q, &a.k, &a.v}) expand_axis(*heads, 0, a.y.batch());
  expand_axis(a.q, 1, a.y.heads());
  if (!grouped && a.k.heads() != a.v.heads())
    for (HeadTensor* heads : {&a.k, &a.v}) expand_axis(*heads, 1, a.y.heads());
  if (node.has_input(kMask)) {
    a.mask = make_mask(node, node.input(kMask));
    if (attributes.integer("short_mask", 0) == 0) a.mask->keys = a.k.rows();
    a.mask->true_is_masked = attributes.integer("mask_hides") != 0;
    a.mask->masked_score = attributes.real("hidden");
  }
  a.softcap = attributes.real("softcap", 0);
  set_visible_key_range(a, attributes, 0);
  a.scale = attributes.real("scale");
  a.zero_empty = attributes.integer("zero_empty") != 0;
  const auto divisors = static_cast<size_t>(attributes.integer("divisors"));
  for (size_t i = kValueSizes + 1; i < node.inputs.size(); ++i) {
    const double number = node.host_tensor(i)->as_double()[0];
    a.scale = i <= kValueSizes + divisors ? a.scale / number : a.scale * number;
  }
  add_attention(node, a);
}

OperatorRows define_attention_operators() {
  const auto floats = [](std::string_view name) { return value_role(name, kFloats); };
  const auto optional_floats = [](std::string_view name) { return optional_role(name, kFloats); };
  return {
      {.name = "Attention",
       .skeleton = KernelKind::contraction,
       .schema =
           {.inputs = {floats("q"), floats("k"), floats("v"), optional_role("attn_mask", kFloats | kBool), optional_floats("past_key"),
                       optional_floats("past_value"), optional_role("nonpad_kv_seqlen", kInt64)},
            .outputs = {floats("y"), optional_floats("present_key"), optional_floats("present_value"), optional_floats("qk_matmul_output")},
            .attributes =
                {integer_attribute("is_causal", 0),
                 optional_attribute("kv_num_heads", AttributeKind::integer),
                 integer_attribute("left_window_size", -1),
                 optional_attribute("q_num_heads", AttributeKind::integer),
                 {"qk_matmul_output_mode", AttributeKind::integer, int64_t{0}, false, {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{3}}},
                 integer_attribute("right_window_size", -1),
                 optional_attribute("scale", AttributeKind::real),
                 real_attribute("softcap", 0),
                 optional_attribute("softmax_precision", AttributeKind::integer)},
            .min_rank = 3,
            .max_rank = 4},
       .shape = infer_attention_shape,
       .lower = lower_attention,
       .flop = count_onnx_attention_flops,
       .indices = get_key_length_bounds,
       .strides = StrideSupport::any_in,
       .split = append_attention_split_axes,
       .epilogue = true},
      {.name = "RotaryEmbedding",
       .skeleton = KernelKind::index_map,
       .schema = {.inputs = {floats("x"), floats("cos_cache"), floats("sin_cache"), optional_role("position_ids", kInt64)},
                  .outputs = {floats("y")},
                  .attributes = {integer_attribute("interleaved", 0), integer_attribute("num_heads", 0),
                                 integer_attribute("rotary_embedding_dim", 0)},
                  .min_rank = 3,
                  .max_rank = 4},
       .shape = infer_rotary_embedding_shape,
       .lower = lower_rotary_embedding,
       .indices = get_position_id_bounds,
       .strides = StrideSupport::any_in,
       .layout = {.permuted_inputs = make_input_mask(0)}},
      // Fuses RotaryEmbedding of queries and keys with TensorScatter of keys and values into the KV caches.
      {.name = "pumice::RotaryCaches",
       .skeleton = KernelKind::index_map,
       .schema = {.inputs = {floats("q"), floats("k"), floats("v"), floats("cos_cache"), floats("sin_cache"),
                             value_role("position_ids", kInt64), floats("past_keys"), floats("past_values"),
                             value_role("write_indices", kInt64)},
                  .outputs = {floats("y"), floats("present_keys"), floats("present_values")},
                  .attributes = {integer_attribute("interleaved", 0), integer_attribute("rotary_embedding_dim", 0)},
                  .min_rank = 4,
                  .max_rank = 4},
       .shape = infer_rotary_kv_cache_shape,
       .lower = lower_rotary_kv_cache,
       .strides = StrideSupport::any_in,
       .layout = {.permuted_inputs = make_input_mask(0, 1, 2)}},
      // Attention fused from primitive operators. Attributes: the permutations that bring q, k and v to [.., rows, size], and the
      // permutation of the output.
      {.name = "pumice::Attention",
       .skeleton = KernelKind::contraction,
       .schema = {.inputs = {floats("q"),
                             floats("k"),
                             floats("v"),
                             optional_role("mask", kFloats | kBool),
                             optional_role("key_sizes", kInt64),
                             optional_role("value_sizes", kInt64),
                             {"scales", kFloats, true, true}},
                  .outputs = {floats("y")},
                  .attributes = {integer_attribute("divisors", 0), integer_attribute("grouped", 0),
                                 real_attribute("hidden", -std::numeric_limits<double>::infinity()), integer_attribute("is_causal", 0),
                                 required_attribute("k_axes", AttributeKind::integers), integer_attribute("left_window_size", -1),
                                 integer_attribute("mask_hides", 0), required_attribute("q_axes", AttributeKind::integers),
                                 integer_attribute("right_window_size", -1), real_attribute("scale", 1), integer_attribute("short_mask", 0),
                                 real_attribute("softcap", 0), required_attribute("v_axes", AttributeKind::integers),
                                 required_attribute("y_axes", AttributeKind::integers), integer_attribute("zero_empty", 0)},
                  .min_rank = 2,
                  .max_rank = 4},
       .shape = infer_fused_attention_shape,
       .lower = lower_fused_attention,
       .flop = count_fused_attention_flops,
       .host_inputs = ~make_input_mask(kQ, kK, kV, kMask),
       .strides = StrideSupport::any_in,
       .layout = {.permuted_inputs = make_input_mask(kQ, kK, kV)},
       .split = append_fused_attention_split_axes,
       .epilogue = true}};
}

}  // namespace pumice

// Shared by the attention kernels: y = softmax(scale q k^T + mask) v, all [batch, heads, seq, size], with any strides; only the last axis
// must be contiguous. Online softmax: one pass over the keys with a running maximum and sum; scores are never stored.
// MASKED 1: bool mask; a key is visible if its mask element is MASK_VISIBLE; otherwise its score is MASKED_SCORE. 2: additive mask.
// HAS_KV_LENGTHS: kv_len per batch item; query positions are counted from its end. ZERO_EMPTY: queries with no visible key give 0,
// otherwise NaN.
// SPLIT_KEYS: split-K into chunks of p.split_size keys, merged by attention_combine. MERGES_SPLITS: the last workgroup of a row tile to
// finish merges them.
// VEC4, Y_VEC4: head sizes are multiples of 4, and heads are aligned to vec4s. VEC8: 16-byte loads of eight 16-bit elements, unpacked by
// the kernel.
// INT8: int8 K and V with a scale per cache row and head; no mask. SCALE_FIRST: scores are scaled before the softmax, because of softcap,
// or because the scale is negative or too small.
#include "include/attention_softmax.glsl"

layout(push_constant) uniform parameter {
  uint rows, keys, heads, group;  // group: query heads per KV head (GQA)
  uint q_batch, q_head, q_row;    // strides in elements
  uint k_batch, k_head, k_row;
  uint v_batch, v_head, v_row;
  uint y_batch, y_head, y_row;
#if INT8
  uint k_scales_offset, v_scales_offset;
#else
  uint mask_batch, mask_head, mask_row, mask_key;
  uint mask_keys;                 // mask length; later keys are not visible
#endif
  float scale, softcap;           // softcap: 0 for none
  int first, last;                // query i attends to keys i + first .. i + last
#ifdef SCORE_STAGE
  uint planes;                    // batch * heads
#elif HEAD_GROUPS && !SPLIT_KEYS
  uint head_group;                  // number of heads whose workgroups are scheduled together, longest first
#else
  uint split_size;
#endif
  uint q_offset, k_offset, v_offset, y_offset, kv_lengths_offset;
#if !INT8
  uint mask_offset;
#endif
} p;

layout(constant_id = 0) const uint SIZE = 64u;    // head size of Q and K
layout(constant_id = 1) const uint V_SIZE = 64u;  // head size of V

#if VEC8
#define Q_TYPE uvec4
#define K_TYPE uvec4
#elif VEC4
#define Q_TYPE sfpvec4
#define K_TYPE sfpvec4
#else
#define Q_TYPE sfp
#define K_TYPE sfp
#endif
#if INT8
#undef K_TYPE
#if VEC8
#define K_TYPE uvec2
#else
#define K_TYPE uint
#endif
layout(binding = 8) readonly buffer KScales { sfp k_scales[]; };
layout(binding = 9) readonly buffer VScales { sfp v_scales[]; };
#endif
layout(binding = 0) readonly buffer Q { Q_TYPE q[]; };
layout(binding = 1) readonly buffer K { K_TYPE k[]; };
layout(binding = 2) readonly buffer V { K_TYPE v[]; };
#if MERGES_SPLITS
#if VEC4_PARTIALS
layout(binding = 3) coherent buffer Partials { vec4 partials[]; };
#else
layout(binding = 3) coherent buffer Partials { float partials[]; };
#endif
layout(binding = 7) coherent buffer Finished { uint finished[]; };  // number of finished chunks per row tile; zero between dispatches
#define HAS_Y 1
#define Y_BINDING 6
#elif SPLIT_KEYS
layout(binding = 3) writeonly buffer Partials { float partials[]; };
#else
#define HAS_Y 1
#define Y_BINDING 3
#endif
#if HAS_Y && Y_VEC4
layout(binding = Y_BINDING) writeonly buffer Y { sfpvec4 y[]; };
#elif HAS_Y
layout(binding = Y_BINDING) buffer Y { sfp y[]; };
#endif
#if MASKED == 1
layout(binding = 4) readonly buffer Mask { uint mask[]; };
#elif MASKED == 2
layout(binding = 4) readonly buffer Mask { sfp mask[]; };
#endif
#if HAS_KV_LENGTHS
layout(binding = 5) readonly buffer KvLengths { uvec2 kv_lengths[]; };
#endif

#include "include/epilogue.glsl"

#if INT8
// Returns the scale of the cache row that starts at element `at`; rows are contiguous.
float load_k_scale(uint at) { return pm_load(k_scales, p.k_scales_offset + (at - p.k_offset) / SIZE); }
float load_v_scale(uint at) { return pm_load(v_scales, p.v_scales_offset + (at - p.v_offset) / V_SIZE); }
#endif

#if !VEC8
// Loads elements i .. i + 3 of a row of a head; i is a multiple of 4. Elements past the end of the row are zero.
#if VEC4
#define DEFINE_LOAD_VEC4(name, x, size) \
  vec4 name(uint at, uint i) { return i < (size) ? pm_load_vec4(x, (at + i) >> 2) : vec4(0.0); }
#else
#define DEFINE_LOAD_VEC4(name, x, size)                                                        \
  vec4 name(uint at, uint i) {                                                          \
    vec4 four = vec4(0.0);                                                              \
    for (uint j = 0u; j < 4u; ++j) if (i + j < (size)) four[j] = pm_load(x, at + i + j); \
    return four;                                                                        \
  }
#endif
DEFINE_LOAD_VEC4(load_q, q, SIZE)
#if INT8
#define DEFINE_LOAD_INT8(name, x, size, scale)                                                                     \
  vec4 name(uint at, uint i) {                                                                               \
    return i < (size) ? vec4(pm_unpack_i8(x[(at + i) >> 2])) * scale(at) : vec4(0.0);                        \
  }
DEFINE_LOAD_INT8(load_k, k, SIZE, load_k_scale)
DEFINE_LOAD_INT8(load_v, v, V_SIZE, load_v_scale)
#else
DEFINE_LOAD_VEC4(load_k, k, SIZE)
DEFINE_LOAD_VEC4(load_v, v, V_SIZE)
#endif
#endif

uint q_row_offset(uint batch, uint head, uint row) { return p.q_offset + batch * p.q_batch + head * p.q_head + row * p.q_row; }
uint k_head_offset(uint batch, uint head) { return p.k_offset + batch * p.k_batch + head / p.group * p.k_head; }
uint v_head_offset(uint batch, uint head) { return p.v_offset + batch * p.v_batch + head / p.group * p.v_head; }

#if GRID_AXES == 0
// Row tile of this workgroup, in reversed order: with a causal mask, the last queries attend to the most keys and should start first.
uint tile_index() { return grid_size().x - 1u - grid_group().x; }
#endif

// Visible keys of a query: [x, y).
ivec2 visible_keys(uint batch, uint row) {
  int keys = int(p.keys), position = int(row);
#if HAS_KV_LENGTHS
  const uvec2 kv_length = kv_lengths[p.kv_lengths_offset + batch];
  const int count = kv_length.y == 0u ? int(min(kv_length.x, p.keys)) : int(kv_length.y) < 0 ? 0 : keys;
  position += count - int(p.rows);
  keys = count;
#endif
#if MASKED
  keys = min(keys, int(p.mask_keys));
#endif
  return ivec2(max(position + p.first, 0), min(position + p.last + 1, keys));
}

float scale_score(float product) {
  const float score = product * p.scale;
#if SCALE_FIRST
  if (p.softcap != 0.0) return p.softcap * pm_tanh(score / p.softcap);
#endif
  return score;
}

#if MASKED
uint mask_index(uint batch, uint head, uint row, uint key) {
  return p.mask_offset + batch * p.mask_batch + head * p.mask_head + row * p.mask_row + key * p.mask_key;
}

// Index of the last key with a mask element. Keys past it read this element, so that the load needs no branch.
uint last_masked() { return max(p.mask_keys, 1u) - 1u; }

// Functions that load a mask element, and that apply it to a score.
#if MASKED == 1
float load_mask(uint at) { return pm_load_bool(mask, at) == MASK_VISIBLE ? 1.0 : 0.0; }
float apply_mask(float score, float mask_value) { return mask_value != 0.0 ? score : MASKED_SCORE; }
#else
float load_mask(uint at) { return pm_load(mask, at); }
// -65504, the lowest fp16 value, is treated as -infinity: it replaces the score.
#if NCNN_fp16_packed || NCNN_fp16_storage
float apply_mask(float score, float mask_value) { return mask_value == -65504.0 ? mask_value : score + mask_value; }
#else
float apply_mask(float score, float mask_value) { return score + mask_value; }
#endif
#endif
#endif

// Score of a visible key, from the dot product of q and k.
float attention_score(uint batch, uint head, uint row, uint key, float product) {
#if MASKED
  return apply_mask(scale_score(product), load_mask(mask_index(batch, head, row, min(key, last_masked()))));
#else
  return scale_score(product);
#endif
}

// Index of the first output element of a query.
uint y_row_offset(uint batch, uint head, uint row) {
#if SPLIT_KEYS
  return (((batch * p.heads + head) * p.rows + row) * grid_size().z + grid_group().z) * (V_SIZE + 2u);
#else
  return p.y_offset + batch * p.y_batch + head * p.y_head + row * p.y_row;
#endif
}

#if HAS_Y
// Stores outputs column .. column + 3 (`column` is a multiple of 4): the weighted sums divided by the sum of exponentials.
void store_output(uint at, uint column, vec4 sums, float sum) {
  sums = epilogue(sums * inverse_sum(sum));
#if Y_VEC4
  if (column < V_SIZE) pm_store_vec4(y, (at + column) >> 2, sums);
#else
  for (uint j = 0u; j < 4u; ++j)
    if (column + j < V_SIZE) pm_store(y, at + column + j, sums[j]);
#endif
}
#endif

// Stores four outputs like store_output(), or with SPLIT_KEYS the unnormalised sums.
void store_output_vec4(uint at, uint column, vec4 sums, float sum) {
#if SPLIT_KEYS
  for (uint j = 0u; j < 4u; ++j)
    if (column + j < V_SIZE) partials[at + column + j] = sums[j];
#else
  store_output(at, column, sums, sum);
#endif
}

// SPLIT_KEYS: stores the maximum and the sum of exponentials after the sums of a chunk.
void store_softmax_stats(uint at, float row_max, float sum) {
#if SPLIT_KEYS
  partials[at + V_SIZE] = row_max;
  partials[at + V_SIZE + 1u] = sum;
#endif
}

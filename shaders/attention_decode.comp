// Decode attention without cooperative matrices (few queries, memory-bound). See include/attention.glsl for buffers.
//
// Workgroup (x, y, z) = (ROWS queries of heads that share K and V, K/V head of a batch item, split of the keys). GROUP_THREADS invocations
// share a key: each loads ITEMS_PER_THREAD vec4s of it and uses them for all ROWS queries. THREAD_GROUPS such groups process different
// keys.
//   for each 4 keys of the group:
//     load K and V; partial dot products for ROWS queries; reduce over the GROUP_THREADS invocations
//     online softmax; acc = acc * factor + P v
//   reduce over THREAD_GROUPS in shared memory; store, write the partial result (SPLIT_KEYS), or let the last workgroup of a row merge them
//   (MERGES_SPLITS)
//
// GPUs need no extension. SUBGROUP: uses subgroup shuffles. CPU_VARIANT: one subgroup of 8, for CPU drivers. Selected in attention.cpp
// (make_decode_plan).
#version 450
#if CPU_VARIANT || SUBGROUP
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
#extension GL_EXT_control_flow_attributes : require
#define GRID_AXES 0
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#include "include/attention.glsl"
#if MERGES_SPLITS
#include "include/attention_partials.glsl"
#endif
layout(local_size_x = GROUP_THREADS * THREAD_GROUPS) in;
#include "include/thread_group.glsl"
#if CPU_VARIANT
#define THREAD_GROUP_INDEX 0u
#define THREAD_IN_GROUP gl_LocalInvocationID.x
#else
shared vec4 reduce_buffer[GROUP_THREADS * THREAD_GROUPS + 16u];
#endif
PM_DEFINE_GROUP_REDUCE(reduce_sums, vec4, reduce_buffer, pm_sum)

#define COLUMN(h) ((THREAD_IN_GROUP + (h) * GROUP_THREADS) * 4u)
#define FOR_ROWS(r) [[unroll]] for (uint r = 0u; r < ROWS; ++r)
#define FOR_THREAD_ITEMS(h) [[unroll]] for (uint h = 0u; h < ITEMS_PER_THREAD; ++h)

#if THREAD_GROUPS > 1
shared vec4 group_acc[ROWS * THREAD_GROUPS * GROUP_THREADS * ITEMS_PER_THREAD];
shared vec2 group_stats[ROWS * THREAD_GROUPS];
#endif

// Returns (query head, query) of row r of the workgroup.
uvec2 query_of_row(uint r, uint kv_head) {
  const uint row = min(grid_group().x * ROWS + r, p.group * p.rows - 1u);
  return uvec2(kv_head * p.group + row / p.rows, row % p.rows);
}

void store_row(uint r, uint batch, uint kv_head, vec4 sums[ITEMS_PER_THREAD], float row_max, float sum) {
  if (grid_group().x * ROWS + r >= p.group * p.rows) return;
  const uvec2 query = query_of_row(r, kv_head);
  const uint at = y_row_offset(batch, query.x, query.y);
  FOR_THREAD_ITEMS(h) store_output_vec4(at, COLUMN(h), sums[h], sum);
  if (THREAD_IN_GROUP == 0u) store_softmax_stats(at, row_max, sum);
}

#if MERGES_SPLITS
shared bool is_last;

// Merges the `count` splits of the rows if this workgroup is the last to finish.
void merge_splits(uint batch, uint kv_head, uint count) {
  memoryBarrierBuffer();
  barrier();  // wait until this workgroup has written its partial result
  if (gl_LocalInvocationIndex == 0u) {
    memoryBarrierBuffer();  // barrier() orders only shared memory
    const uint counter = grid_group().y * grid_size().x + grid_group().x;
    is_last = atomicAdd(finished[counter], 1u) + 1u == count;
    if (is_last) atomicExchange(finished[counter], 0u);
  }
  barrier();
  if (!is_last) return;
  memoryBarrierBuffer();
  const uint vec4_per_row = (V_SIZE + 3u) / 4u;
  for (uint i = gl_LocalInvocationIndex; i < ROWS * vec4_per_row; i += GROUP_THREADS * THREAD_GROUPS) {
    const uint r = i / vec4_per_row, column = i % vec4_per_row * 4u;
    if (grid_group().x * ROWS + r >= p.group * p.rows) continue;
    const uvec2 query = query_of_row(r, kv_head);
    const uint first = ((batch * p.heads + query.x) * p.rows + query.y) * grid_size().z * (V_SIZE + 2u);
    const MergedPartials merged_result = merge_partials(first, count, V_SIZE, column);
    store_output(p.y_offset + batch * p.y_batch + query.x * p.y_head + query.y * p.y_row, column, merged_result.sums, merged_result.sum);
  }
}
#endif

void main() {
  const uint kv_heads = p.heads / p.group, batch = grid_group().y / kv_heads, kv_head = grid_group().y % kv_heads;
  uint heads[ROWS], rows[ROWS];
  ivec2 visible_range[ROWS], all = ivec2(int(p.keys), 0);
  vec4 q_regs[ROWS * ITEMS_PER_THREAD], sums[ROWS * ITEMS_PER_THREAD];
  float row_max[ROWS], sum[ROWS];
  FOR_ROWS(r) {
    const uvec2 query = query_of_row(r, kv_head);
    heads[r] = query.x;
    rows[r] = query.y;
    visible_range[r] = visible_keys(batch, rows[r]);
    all = ivec2(min(all.x, visible_range[r].x), max(all.y, visible_range[r].y));
    const uint at = q_row_offset(batch, heads[r], rows[r]);
    FOR_THREAD_ITEMS(h) {
      q_regs[r * ITEMS_PER_THREAD + h] = load_q(at, COLUMN(h));
      sums[r * ITEMS_PER_THREAD + h] = vec4(0.0);
    }
    row_max[r] = minus_infinity;
    sum[r] = 0.0;
  }
  // Split only the visible keys, which may be few.
  const uint num_visible = uint(max(all.y - all.x, 0)), min_split_size = min(THREAD_GROUPS * 4u, p.split_size);
  const uint split_size = max(((num_visible + grid_size().z - 1u) / grid_size().z + 3u) / 4u * 4u, min_split_size);
  const int begin = all.x + int(grid_group().z * split_size), end = min(all.y, begin + int(split_size));
#if MERGES_SPLITS
  const uint count = max((num_visible + split_size - 1u) / split_size, 1u);
  if (grid_group().z >= count) return;
#endif
  const uint at_k = k_head_offset(batch, heads[0]), at_v = v_head_offset(batch, heads[0]);
  for (int base = begin; base < end; base += int(THREAD_GROUPS * 4u)) {
    const int key = base + int(THREAD_GROUP_INDEX * 4u);
    vec4 values[4u * ITEMS_PER_THREAD], products[ROWS];
    FOR_ROWS(r) products[r] = vec4(0.0);
    [[unroll]] for (uint i = 0u; i < 4u; ++i) {
      const uint row = uint(min(key + int(i), end - 1));
      FOR_THREAD_ITEMS(h) {
        const vec4 x4 = load_k(at_k + row * p.k_row, COLUMN(h));
        values[i * ITEMS_PER_THREAD + h] = load_v(at_v + row * p.v_row, COLUMN(h));
        FOR_ROWS(r) products[r][i] += dot(q_regs[r * ITEMS_PER_THREAD + h], x4);
      }
    }
    FOR_ROWS(r) {
      vec4 scores = reduce_sums(products[r]);
      float new_max = row_max[r];
      [[unroll]] for (int i = 0; i < 4; ++i) {
        const bool is_visible = key + i >= visible_range[r].x && key + i < min(visible_range[r].y, end);
        scores[i] = is_visible ? attention_score(batch, heads[r], rows[r], uint(key + i), scores[i]) : minus_infinity;
        new_max = max(new_max, scores[i]);
      }
      const float shift = softmax_shift(new_max), factor = exp(row_max[r] - shift);
      scores = exp(scores - shift);
      row_max[r] = new_max;
      sum[r] = sum[r] * factor + ((scores.x + scores.y) + (scores.z + scores.w));
      FOR_THREAD_ITEMS(h) {
        vec4 x4 = sums[r * ITEMS_PER_THREAD + h] * factor;
        [[unroll]] for (uint i = 0u; i < 4u; ++i) x4 += scores[i] * values[i * ITEMS_PER_THREAD + h];
        sums[r * ITEMS_PER_THREAD + h] = x4;
      }
    }
  }
#if THREAD_GROUPS > 1
  FOR_ROWS(r) {
    if (THREAD_IN_GROUP == 0u) group_stats[r * THREAD_GROUPS + THREAD_GROUP_INDEX] = vec2(row_max[r], sum[r]);
    FOR_THREAD_ITEMS(h) group_acc[((r * THREAD_GROUPS + THREAD_GROUP_INDEX) * ITEMS_PER_THREAD + h) * GROUP_THREADS + THREAD_IN_GROUP] = sums[r * ITEMS_PER_THREAD + h];
  }
  barrier();  // wait until all groups have stored their partial results
  // Each group merges different rows, so that rows are merged in parallel.
  for (uint r = THREAD_GROUP_INDEX; r < ROWS; r += THREAD_GROUPS) {
    float merged_max = minus_infinity, merged_sum = 0.0;
    vec4 merged[ITEMS_PER_THREAD];
    FOR_THREAD_ITEMS(h) merged[h] = vec4(0.0);
    [[unroll]] for (uint t = 0u; t < THREAD_GROUPS; ++t) merged_max = max(merged_max, group_stats[r * THREAD_GROUPS + t].x);
    [[unroll]] for (uint t = 0u; t < THREAD_GROUPS; ++t) {
      const vec2 stats = group_stats[r * THREAD_GROUPS + t];
      const float factor = exp(stats.x - softmax_shift(merged_max));
      merged_sum += stats.y * factor;
      FOR_THREAD_ITEMS(h) merged[h] += group_acc[((r * THREAD_GROUPS + t) * ITEMS_PER_THREAD + h) * GROUP_THREADS + THREAD_IN_GROUP] * factor;
    }
    store_row(r, batch, kv_head, merged, merged_max, merged_sum);
  }
#else
  FOR_ROWS(r) {
    vec4 row_acc[ITEMS_PER_THREAD];
    FOR_THREAD_ITEMS(h) row_acc[h] = sums[r * ITEMS_PER_THREAD + h];
    if (THREAD_GROUP_INDEX == 0u) store_row(r, batch, kv_head, row_acc, row_max[r], sum[r]);
  }
#endif
#if MERGES_SPLITS
  merge_splits(batch, kv_head, count);
#endif
}

// Flash attention for CPU drivers: y = softmax(scale q k^T + mask) v; see include/attention.glsl for buffers and macros.
//
// Workgroup (x, y, z) = (16 queries, head of a batch item, split of the keys), one subgroup of 8. Each lane processes two queries. K and V
// elements are loaded once per subgroup and broadcast by subgroupShuffle with constant lanes, as in conv_cpu. Scores are in registers;
// the output accumulators are in shared memory, private to each lane.
//   for each tile of 16 keys:
//     S = q k^T                      // for each 4 elements of the head: 2 loads per lane, 16 broadcasts
//     online softmax: m, l, P = exp(S - m)
//     acc = acc * exp(m_old - m) + P v
//
// Selected in attention.cpp (make_cpu_plan) for devices that prefer CPU variants. The keys are split so that no loop reaches lavapipe's
// limit of 65,535 iterations.
#version 450
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_control_flow_attributes : require
#define GRID_AXES 0
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#include "include/attention.glsl"
layout(local_size_x = 8) in;

const uint kLanes = 8u, kRows = 2u, kKeys = 16u, kVec4PerRow = (V_SIZE + 3u) / 4u;
shared vec4 sums[kVec4PerRow * kRows * kLanes];

#define FOR_ROWS(i) [[unroll]] for (uint i = 0u; i < kRows; ++i)
#define FOR_KEYS(j) [[unroll]] for (uint j = 0u; j < kKeys; ++j)

void main() {
  const uint lane = gl_LocalInvocationID.x, batch = grid_group().y / p.heads, head = grid_group().y % p.heads;
  const uint first_row = grid_group().x * kRows * kLanes, last_row = min(first_row + kRows * kLanes, p.rows) - 1u;
  const int begin = max(visible_keys(batch, first_row).x, int(grid_group().z * p.split_size));
  const int end = min(visible_keys(batch, last_row).y, int((grid_group().z + 1u) * p.split_size));
  const uint at_k = k_head_offset(batch, head), at_v = v_head_offset(batch, head);
  uint rows[kRows], at_q[kRows];
  ivec2 visible_range[kRows];
  float row_max[kRows], sum[kRows];
  FOR_ROWS(i) {
    rows[i] = min(first_row + i * kLanes + lane, last_row);
    at_q[i] = q_row_offset(batch, head, rows[i]);
    visible_range[i] = visible_keys(batch, rows[i]);
    row_max[i] = minus_infinity;
    sum[i] = 0.0;
  }
  for (uint vec4_index = 0u; vec4_index < kVec4PerRow * kRows; ++vec4_index) sums[vec4_index * kLanes + lane] = vec4(0.0);
  for (int key = begin; key < end; key += int(kKeys)) {
    const uint key_a = uint(min(key + int(lane), end - 1)), key_b = uint(min(key + int(lane + kLanes), end - 1));
    const uint k_offset_a = at_k + key_a * p.k_row, k_offset_b = at_k + key_b * p.k_row;
    float scores[kKeys * kRows];
    [[unroll]] for (uint i = 0u; i < kKeys * kRows; ++i) scores[i] = 0.0;
    for (uint head_offset = 0u; head_offset < SIZE; head_offset += 4u) {
      vec4 x[kRows];
      FOR_ROWS(i) x[i] = load_q(at_q[i], head_offset);
      const vec4 loaded[2] = vec4[2](load_k(k_offset_a, head_offset), load_k(k_offset_b, head_offset));
      FOR_KEYS(j) {
        const vec4 x4 = loaded[j / kLanes];
        const float a = subgroupShuffle(x4.x, j % kLanes), b = subgroupShuffle(x4.y, j % kLanes);
        const float c = subgroupShuffle(x4.z, j % kLanes), d = subgroupShuffle(x4.w, j % kLanes);
        FOR_ROWS(i) scores[j * kRows + i] = fma(d, x[i].w, fma(c, x[i].z, fma(b, x[i].y, fma(a, x[i].x, scores[j * kRows + i]))));
      }
    }
    float rescale[kRows];
    FOR_ROWS(i) {
      float new_max = row_max[i];
      FOR_KEYS(j) {
        const int at = key + int(j);
        const bool is_visible = at >= visible_range[i].x && at < min(visible_range[i].y, end);
        scores[j * kRows + i] = is_visible ? attention_score(batch, head, rows[i], uint(at), scores[j * kRows + i]) : minus_infinity;
        new_max = max(new_max, scores[j * kRows + i]);
      }
      const float shift = softmax_shift(new_max);
      rescale[i] = exp(row_max[i] - shift);
      row_max[i] = new_max;
      sum[i] *= rescale[i];
      FOR_KEYS(j) {
        scores[j * kRows + i] = exp(scores[j * kRows + i] - shift);
        sum[i] += scores[j * kRows + i];
      }
    }
    const uint v_offset_a = at_v + key_a * p.v_row, v_offset_b = at_v + key_b * p.v_row;
    for (uint vec4_index = 0u; vec4_index < kVec4PerRow; ++vec4_index) {
      vec4 acc[kRows];
      FOR_ROWS(i) acc[i] = sums[(vec4_index * kRows + i) * kLanes + lane] * rescale[i];
      const vec4 loaded[2] = vec4[2](load_v(v_offset_a, vec4_index * 4u), load_v(v_offset_b, vec4_index * 4u));
      FOR_KEYS(j) {
        const vec4 from = loaded[j / kLanes];
        const vec4 value = vec4(subgroupShuffle(from.x, j % kLanes), subgroupShuffle(from.y, j % kLanes),
                                subgroupShuffle(from.z, j % kLanes), subgroupShuffle(from.w, j % kLanes));
        FOR_ROWS(i) acc[i] = fma(vec4(scores[j * kRows + i]), value, acc[i]);
      }
      FOR_ROWS(i) sums[(vec4_index * kRows + i) * kLanes + lane] = acc[i];
    }
  }
  FOR_ROWS(i) {
    if (first_row + i * kLanes + lane > last_row) continue;
    const uint at = y_row_offset(batch, head, rows[i]);
    for (uint vec4_index = 0u; vec4_index < kVec4PerRow; ++vec4_index) store_output_vec4(at, vec4_index * 4u, sums[(vec4_index * kRows + i) * kLanes + lane], sum[i]);
    store_softmax_stats(at, row_max[i], sum[i]);
  }
}

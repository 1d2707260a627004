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
// Selected in attention.cpp (lanes_plan) for devices that prefer CPU variants. The keys are split so that no loop reaches lavapipe's limit
// of 65,535 iterations.
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

const uint kLanes = 8u, kRows = 2u, kKeys = 16u, kFours = (V_SIZE + 3u) / 4u;
shared vec4 sums[kFours * kRows * kLanes];

#define FOR_ROWS(i) [[unroll]] for (uint i = 0u; i < kRows; ++i)
#define FOR_KEYS(j) [[unroll]] for (uint j = 0u; j < kKeys; ++j)

void main() {
  const uint lane = gl_LocalInvocationID.x, image = grid_group().y / p.heads, head = grid_group().y % p.heads;
  const uint first_row = grid_group().x * kRows * kLanes, last_row = min(first_row + kRows * kLanes, p.rows) - 1u;
  const int begin = max(seen_keys(image, first_row).x, int(grid_group().z * p.stretch));
  const int end = min(seen_keys(image, last_row).y, int((grid_group().z + 1u) * p.stretch));
  const uint at_k = first_k(image, head), at_v = first_v(image, head);
  uint rows[kRows], at_q[kRows];
  ivec2 seen[kRows];
  float largest[kRows], sum[kRows];
  FOR_ROWS(i) {
    rows[i] = min(first_row + i * kLanes + lane, last_row);
    at_q[i] = first_q(image, head, rows[i]);
    seen[i] = seen_keys(image, rows[i]);
    largest[i] = minus_infinity;
    sum[i] = 0.0;
  }
  for (uint four = 0u; four < kFours * kRows; ++four) sums[four * kLanes + lane] = vec4(0.0);
  for (int key = begin; key < end; key += int(kKeys)) {
    const uint near = uint(min(key + int(lane), end - 1)), far = uint(min(key + int(lane + kLanes), end - 1));
    const uint k_near = at_k + near * p.k_row, k_far = at_k + far * p.k_row;
    float scores[kKeys * kRows];
    [[unroll]] for (uint i = 0u; i < kKeys * kRows; ++i) scores[i] = 0.0;
    for (uint depth = 0u; depth < SIZE; depth += 4u) {
      vec4 x[kRows];
      FOR_ROWS(i) x[i] = load_q(at_q[i], depth);
      const vec4 fours[2] = vec4[2](load_k(k_near, depth), load_k(k_far, depth));
      FOR_KEYS(j) {
        const vec4 four = fours[j / kLanes];
        const float a = subgroupShuffle(four.x, j % kLanes), b = subgroupShuffle(four.y, j % kLanes);
        const float c = subgroupShuffle(four.z, j % kLanes), d = subgroupShuffle(four.w, j % kLanes);
        FOR_ROWS(i) scores[j * kRows + i] = fma(d, x[i].w, fma(c, x[i].z, fma(b, x[i].y, fma(a, x[i].x, scores[j * kRows + i]))));
      }
    }
    float factors[kRows];
    FOR_ROWS(i) {
      float now = largest[i];
      FOR_KEYS(j) {
        const int at = key + int(j);
        const bool is_seen = at >= seen[i].x && at < min(seen[i].y, end);
        scores[j * kRows + i] = is_seen ? score_of(image, head, rows[i], uint(at), scores[j * kRows + i]) : minus_infinity;
        now = max(now, scores[j * kRows + i]);
      }
      const float reference = reference_of(now);
      factors[i] = exp(largest[i] - reference);
      largest[i] = now;
      sum[i] *= factors[i];
      FOR_KEYS(j) {
        scores[j * kRows + i] = exp(scores[j * kRows + i] - reference);
        sum[i] += scores[j * kRows + i];
      }
    }
    const uint v_near = at_v + near * p.v_row, v_far = at_v + far * p.v_row;
    for (uint four = 0u; four < kFours; ++four) {
      vec4 own[kRows];
      FOR_ROWS(i) own[i] = sums[(four * kRows + i) * kLanes + lane] * factors[i];
      const vec4 fours[2] = vec4[2](load_v(v_near, four * 4u), load_v(v_far, four * 4u));
      FOR_KEYS(j) {
        const vec4 from = fours[j / kLanes];
        const vec4 value = vec4(subgroupShuffle(from.x, j % kLanes), subgroupShuffle(from.y, j % kLanes),
                                subgroupShuffle(from.z, j % kLanes), subgroupShuffle(from.w, j % kLanes));
        FOR_ROWS(i) own[i] = fma(vec4(scores[j * kRows + i]), value, own[i]);
      }
      FOR_ROWS(i) sums[(four * kRows + i) * kLanes + lane] = own[i];
    }
  }
  FOR_ROWS(i) {
    if (first_row + i * kLanes + lane > last_row) continue;
    const uint at = first_y(image, head, rows[i]);
    for (uint four = 0u; four < kFours; ++four) store_four(at, four * 4u, sums[(four * kRows + i) * kLanes + lane], sum[i]);
    store_terms(at, largest[i], sum[i]);
  }
}

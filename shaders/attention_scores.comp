// Writes attention scores, which the other attention kernels do not store: y[batch, heads, rows, keys], dense.
// SCORE_STAGE 0: scale q k^T; 1: with softcap; 2: with mask; 3: probabilities exp(s - m) / l.
//
// See include/attention.glsl for q, k and mask. softmax_stats (SCORE_STAGE 3): (m, 1 / l) of each row, from attention_combine. One
// invocation computes one score.
//
// For all devices. Selected in cpp/operators/attention/attention.cpp if the scores are an output of the node.
#version 450
#define GRID_AXES 3
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#include "include/attention.glsl"
layout(local_size_x = 64) in;
#if SCORE_STAGE == 3
layout(binding = 6) readonly buffer SoftmaxStats { vec2 softmax_stats[]; };
#endif

void main() {
  const uvec3 group = grid_group((p.keys + gl_WorkGroupSize.x - 1u) / gl_WorkGroupSize.x, p.rows);
  const uint key = group.x * gl_WorkGroupSize.x + gl_LocalInvocationID.x, row = group.y, batch = group.z / p.heads, head = group.z % p.heads;
  if (is_past_grid(group, p.planes) || key >= p.keys) return;
  const uint at_q = q_row_offset(batch, head, row), at_k = k_head_offset(batch, head) + key * p.k_row;
  float product = 0.0;
  for (uint i = 0u; i < SIZE; i += 4u) product += dot(load_q(at_q, i), load_k(at_k, i));
#if SCORE_STAGE < 2
  float score = product * p.scale;
  if (SCORE_STAGE == 1 && p.softcap != 0.0) score = p.softcap * pm_tanh(score / p.softcap);
#else
  const ivec2 visible_range = visible_keys(batch, row);
  float score = int(key) >= visible_range.x && int(key) < visible_range.y ? attention_score(batch, head, row, key, product) : minus_infinity;
#if SCORE_STAGE == 3
  const vec2 stats = softmax_stats[(batch * p.heads + head) * p.rows + row];
  score = exp(score - stats.x) * stats.y;
#endif
#endif
  pm_store(y, p.y_offset + ((batch * p.heads + head) * p.rows + row) * p.keys + key, score);
}

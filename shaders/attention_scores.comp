// Writes attention scores, which the other kernels do not store: y[batch, heads, rows, keys], dense.
// STAGE 0: scale q k^T; 1: with softcap; 2: with mask; 3: probabilities exp(s - m) / l.
//
// See include/attention.glsl for q, k and mask. terms (STAGE 3): (m, 1 / l) of each row, from attention_combine. One invocation computes
// one score.
//
// For all devices. Selected in cpp/operators/attention/attention.cpp if the scores are an output of the node.
#version 450
#define GRID_AXES 3
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#include "include/attention.glsl"
layout(local_size_x = 64) in;
#if STAGE == 3
layout(binding = 6) readonly buffer Terms { vec2 terms[]; };
#endif

void main() {
  const uvec3 group = grid_group((p.keys + gl_WorkGroupSize.x - 1u) / gl_WorkGroupSize.x, p.rows);
  const uint key = group.x * gl_WorkGroupSize.x + gl_LocalInvocationID.x, row = group.y, image = group.z / p.heads, head = group.z % p.heads;
  if (is_past_grid(group, p.planes) || key >= p.keys) return;
  const uint at_q = first_q(image, head, row), at_k = first_k(image, head) + key * p.k_row;
  float product = 0.0;
  for (uint i = 0u; i < SIZE; i += 4u) product += dot(load_q(at_q, i), load_k(at_k, i));
#if STAGE < 2
  float score = product * p.scale;
  if (STAGE == 1 && p.softcap != 0.0) score = p.softcap * pm_tanh(score / p.softcap);
#else
  const ivec2 seen = seen_keys(image, row);
  float score = int(key) >= seen.x && int(key) < seen.y ? score_of(image, head, row, key, product) : minus_infinity;
#if STAGE == 3
  const vec2 term = terms[(image * p.heads + head) * p.rows + row];
  score = exp(score - term.x) * term.y;
#endif
#endif
  pm_store(y, p.y_offset + ((image * p.heads + head) * p.rows + row) * p.keys + key, score);
}

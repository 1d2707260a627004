// Merges the split-K partials of attention: y = sum_i exp(m_i - m) acc_i / sum_i exp(m_i - m) l_i, where m is the maximum of all m_i.
//
// partials: float [batch, heads, rows, num_partials, size + 2]; each has the accumulated values acc_i, the score maximum m_i and the sum of
// exponentials l_i. y: [batch, heads, rows, size], any strides; only the last axis must be contiguous. softmax_stats (STORES_STATS): (m, 1
// / l) of each row, read by attention_scores. One invocation computes four elements of a row.
//
// For all devices. Selected in cpp/operators/attention/attention.cpp if the keys are split and the attention kernel does not merge the
// partials itself (MERGES_SPLITS).
#version 450
#extension GL_EXT_control_flow_attributes : require
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/epilogue.glsl"
#include "include/tensor.glsl"
layout(local_size_x = 64) in;
layout(push_constant) uniform parameter {
  uint results;  // number of vec4s to compute: batch * heads * rows * vec4s per row
  uint rows, heads, size, num_partials;
  uint y_batch, y_head, y_row;
#if STORES_STATS
  uint first_stats_row;  // index of the first row in softmax_stats
#endif
  uint y_offset;
} p;
layout(binding = 0) readonly buffer Partials { float partials[]; };
#if Y_VEC4
layout(binding = 1) writeonly buffer Y { sfpvec4 y[]; };
#else
layout(binding = 1) buffer Y { sfp y[]; };
#endif
#if STORES_STATS
layout(binding = 2) writeonly buffer SoftmaxStats { vec2 softmax_stats[]; };
#endif

#include "include/attention_partials.glsl"

void main() {
  const uint id = grid_invocation();
  if (id >= p.results) return;
  const uint vec4_per_row = (p.size + 3u) / 4u, row = id / vec4_per_row, column = id % vec4_per_row * 4u;
  const MergedPartials merged_result = merge_partials(row * p.num_partials * (p.size + 2u), p.num_partials, p.size, column);
  const float inv_sum = inverse_sum(merged_result.sum);
  const uint batch = row / p.rows / p.heads, head = row / p.rows % p.heads;
  const uint at = p.y_offset + batch * p.y_batch + head * p.y_head + row % p.rows * p.y_row + column;
  const vec4 results = epilogue(merged_result.sums * inv_sum);
#if Y_VEC4
  pm_store_vec4(y, at >> 2, results);
#else
  for (uint j = 0u; j < 4u; ++j)
    if (column + j < p.size) pm_store(y, at + j, results[j]);
#endif
#if STORES_STATS
  if (column == 0u) softmax_stats[p.first_stats_row + row] = vec2(merged_result.shift, inv_sum);
#endif
}

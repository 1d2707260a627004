// Merges the split-K partials of attention: y = sum_i exp(m_i - m) acc_i / sum_i exp(m_i - m) l_i, with the maximum m of all m_i.
//
// parts: float [batch, heads, rows, parts, size + 2], each the accumulated values, then the score maximum m_i and the sum of exponentials
// l_i. y: [batch, heads, rows, size], any strides except for the last axis. terms (TERMS): (m, 1 / l) of each row, read by
// attention_scores. One invocation computes four elements of a row.
//
// For all devices. Selected in cpp/operators/attention/attention.cpp if the keys are split and the attention kernel does not merge itself
// (MEETS).
#version 450
#extension GL_EXT_control_flow_attributes : require
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/epilogue.glsl"
#include "include/tensor.glsl"
layout(local_size_x = 64) in;
layout(push_constant) uniform parameter {
  uint results;  // batch * heads * rows * vec4s per row
  uint rows, heads, size, parts;
  uint y_batch, y_head, y_row;
#if TERMS
  uint first_term;  // index of the first row
#endif
  uint y_offset;
} p;
layout(binding = 0) readonly buffer Parts { float parts[]; };
#if Y_VEC4
layout(binding = 1) writeonly buffer Y { sfpvec4 y[]; };
#else
layout(binding = 1) buffer Y { sfp y[]; };
#endif
#if TERMS
layout(binding = 2) writeonly buffer Terms { vec2 terms[]; };
#endif

#include "include/attention_partials.glsl"

void main() {
  const uint id = grid_invocation();
  if (id >= p.results) return;
  const uint fours = (p.size + 3u) / 4u, row = id / fours, column = id % fours * 4u;
  const Whole whole = whole_of(row * p.parts * (p.size + 2u), p.parts, p.size, column);
  const float share = share_of(whole.sum);
  const uint image = row / p.rows / p.heads, head = row / p.rows % p.heads;
  const uint at = p.y_offset + image * p.y_batch + head * p.y_head + row % p.rows * p.y_row + column;
  const vec4 results = epilogue(whole.sums * share);
#if Y_VEC4
  pm_store_vec4(y, at >> 2, results);
#else
  for (uint j = 0u; j < 4u; ++j)
    if (column + j < p.size) pm_store(y, at + j, results[j]);
#endif
#if TERMS
  if (column == 0u) terms[p.first_term + row] = vec2(whole.reference, share);
#endif
}

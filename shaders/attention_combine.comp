// Combines the results of attention over parts of the keys: see include/attention.glsl. TERMS: also the largest score and the share of each
// row.
#version 450
#extension GL_EXT_control_flow_attributes : require
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/epilogue.glsl"
#include "include/tensor.glsl"
layout(local_size_x = 64) in;
layout(push_constant) uniform parameter {
  uint results;  // rows of all heads, times fours of a head's values
  uint rows, heads, size, parts;
  uint y_batch, y_head, y_row;
#if TERMS
  uint first_term;  // the number of the first row
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

const uint kAtOnce = 8u;

void main() {
  const uint id = grid_invocation();
  if (id >= p.results) return;
  const uint fours = (p.size + 3u) / 4u, row = id / fours, column = id % fours * 4u, apart = p.size + 2u;
  const uint first = row * p.parts * apart;
  const float nothing = uintBitsToFloat(0xff800000u);
  float largest = nothing, reference = 0.0, sum = 0.0;
  vec4 sums = vec4(0.0);
  // Reads kAtOnce parts before it needs the first of them: the reads of one part after another are what the time would go into.
  for (uint begin = 0u; begin < p.parts; begin += kAtOnce) {
    float most[kAtOnce], shares[kAtOnce];
    vec4 fours[kAtOnce];
    [[unroll]] for (uint i = 0u; i < kAtOnce; ++i) {
      const uint at = first + min(begin + i, p.parts - 1u) * apart;
      const bool is_part = begin + i < p.parts;
      most[i] = is_part ? parts[at + p.size] : nothing;
      shares[i] = is_part ? parts[at + p.size + 1u] : 0.0;
      fours[i] = vec4(0.0);
      [[unroll]] for (uint j = 0u; j < 4u; ++j)
        if (is_part && column + j < p.size) fours[i][j] = parts[at + column + j];
    }
    const float before = largest;
    [[unroll]] for (uint i = 0u; i < kAtOnce; ++i) largest = max(largest, most[i]);
    reference = largest == nothing ? 0.0 : largest;
    const float kept = exp(before - reference);
    sum *= kept;
    sums *= kept;
    [[unroll]] for (uint i = 0u; i < kAtOnce; ++i) {
      const float factor = exp(most[i] - reference);
      sum += shares[i] * factor;
      sums += fours[i] * factor;
    }
  }
  const float share = ZERO_EMPTY != 0 && sum == 0.0 ? 0.0 : 1.0 / sum;
  const uint image = row / p.rows / p.heads, head = row / p.rows % p.heads;
  const uint at = p.y_offset + image * p.y_batch + head * p.y_head + row % p.rows * p.y_row + column;
  sums = epilogue(sums * share);
#if Y_VEC4
  pm_store_vec4(y, at >> 2, sums);
#else
  for (uint j = 0u; j < 4u; ++j)
    if (column + j < p.size) pm_store(y, at + j, sums[j]);
#endif
#if TERMS
  if (column == 0u) terms[p.first_term + row] = vec2(reference, share);
#endif
}

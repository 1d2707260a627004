// Packs rows of contiguous elements of UNIT bytes (1 or 2), at any alignment, into rows of whole 16-byte pieces, padded with PAD.
//
// An invocation writes one piece. Used for gemv_col_major and gemm_int8. Selected in cpp/operators/conv_gemm/weight_packing.cpp and
// int8_gemm.cpp.
#version 450
#include "include/grid.glsl"
layout(local_size_x = LOCAL_SIZE) in;
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) writeonly buffer Y { uvec4 y[]; };
layout(push_constant) uniform parameter {
  uint rows, k_size;        // k_size: elements per row
  uint x_row;               // row stride in elements
  uint x_offset, y_offset;  // x_offset in elements, y_offset in words
} p;
void main() {
  const uint id = grid_invocation();
  const uint pieces = (p.k_size * UNIT + 15u) / 16u, row = id / pieces;
  if (row >= p.rows) return;
  const uint begin = (p.x_offset + row * p.x_row) * UNIT, end = begin + p.k_size * UNIT, first = begin + (id - row * pieces) * 16u;
  uint words[5];
  for (uint i = 0u; i < 5u; ++i) words[i] = x[min((first >> 2) + i, (end - 1u) >> 2)];
  const uint shift = (first & 3u) * 8u;
  uvec4 v;
  for (uint i = 0u; i < 4u; ++i) {
    const uint word = shift == 0u ? words[i] : words[i] >> shift | words[i + 1u] << (32u - shift);
    const uint left = end - first > i * 4u ? end - first - i * 4u : 0u;
    const uint mask = left >= 4u ? ~0u : (1u << left * 8u) - 1u;
    v[i] = (word & mask) | (PAD & ~mask);
  }
  y[(p.y_offset >> 2) + id] = v;
}

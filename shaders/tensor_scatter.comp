// TensorScatter: writes the rows of an update to a cache, starting at row write_indices[batch item].
//
// x: [batch, middle, rows, inner], strides in pieces. y: [batch, middle, size, inner]. write_indices: int64 [batch]. BITS: size of a piece;
// ELEMENT_BITS: size of the tensors' elements. CIRCULAR: row indices are modulo the size; otherwise rows past the end are dropped. One
// invocation copies one piece. For all devices; selected in cpp/operators/index/tensor_scatter.cpp.
#version 450
#include "include/grid.glsl"
#include "include/tensor.glsl"
#include "include/cache_row.glsl"
layout(local_size_x = LOCAL_SIZE) in;
layout(push_constant) uniform parameter {
  uint pieces, middle, rows, inner, size;
  uint x_batch_stride, x_middle_stride, x_row_stride;
  uint x_offset, y_offset, write_indices_offset;
} p;
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) buffer Y { uint y[]; };
#if HAS_WRITE_INDICES
layout(binding = 2) readonly buffer WriteIndices { ivec2 write_indices[]; };
#endif

#if CIRCULAR
// Remainder of a non-negative int64 divided by the size: first of the high word, then bit by bit of the low word.
uint int64_remainder(uvec2 number) {
  if (number.y == 0u) return number.x % p.size;
  uint rest = number.y % p.size;
  for (uint i = 32u; i > 0u; --i) rest = (rest << 1 | number.x >> i - 1u & 1u) % p.size;
  return rest;
}
#endif

void main() {
  const uint id = grid_invocation();
  if (id >= p.pieces) return;
  const uint column = id % p.inner, row = id / p.inner % p.rows, outer = id / p.inner / p.rows;
#if HAS_WRITE_INDICES
  ivec2 first_row = write_indices[p.write_indices_offset + outer / p.middle];
#if CIRCULAR
  if (first_row.y >= 0) first_row = ivec2(int64_remainder(uvec2(first_row)), 0);
#endif
  int to = cache_row_index(first_row, row);
#else
  int to = int(row);
#endif
#if CIRCULAR
  if (to >= int(p.size)) to -= int(p.size);  // an update has at most as many rows as the cache
#endif
  if (to < 0 || to >= int(p.size)) return;
  const uint first = outer / p.middle * p.x_batch_stride + outer % p.middle * p.x_middle_stride + row * p.x_row_stride;
  const uint from = p.x_offset * ELEMENT_BITS / uint(BITS) + first + column;
  const uint at = p.y_offset * ELEMENT_BITS / uint(BITS) + (outer * p.size + uint(to)) * p.inner + column;
#if BITS == 32
  y[at] = x[from];
#elif BITS == 16
  pm_store_u16(y, at, pm_load_u16(x, from));
#else
  pm_store_u8(y, at, pm_load_u8(x, from));
#endif
}

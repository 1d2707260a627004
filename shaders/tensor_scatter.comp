// Puts the rows of an update into those of a cache, of which each image says the first: x is [images, middle, rows, inner] with strides
// in pieces, y [images, middle, size, inner]. BITS: of a piece that is moved, ELEMENT_BITS: of an element of the tensors. CIRCULAR: after the last row comes
// the first; otherwise what lies past the last is left out.
#version 450
#include "include/grid.glsl"
#include "include/tensor.glsl"
layout(local_size_x = LOCAL_SIZE) in;
layout(push_constant) uniform parameter {
  uint pieces, middle, rows, inner, size;
  uint x_image, x_middle, x_row;
  uint x_offset, y_offset, firsts_offset;
} p;
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) buffer Y { uint y[]; };
#if PLACED
layout(binding = 2) readonly buffer Firsts { ivec2 firsts[]; };
#endif

void main() {
  const uint id = grid_invocation();
  if (id >= p.pieces) return;
  const uint column = id % p.inner, row = id / p.inner % p.rows, outer = id / p.inner / p.rows;
#if PLACED
  int to = firsts[p.firsts_offset + outer / p.middle].x + int(row);
#else
  int to = int(row);
#endif
#if CIRCULAR
  to %= int(p.size);
#endif
  if (to < 0 || to >= int(p.size)) return;
  const uint first = outer / p.middle * p.x_image + outer % p.middle * p.x_middle + row * p.x_row;
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

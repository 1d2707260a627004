// NonZero in two dispatches with a prefix sum between them. One invocation walks a run of RUN elements.
//
// COUNTS: y[run] = number of nonzero elements of the run, and 0 after the last run. Otherwise: y = indices, int64 [rank, count];
// starts[run] is the number of nonzero elements before the run. SIGN: mask of the sign bit, which is ignored because -0 counts as zero.
// For all devices. Selected in cpp/operators/reduction/non_zero.cpp.
#version 450
layout(local_size_x = 64) in;
#include "include/grid.glsl"
#include "include/tensor.glsl"
#if BITS == 64
layout(binding = 0) readonly buffer X { uvec2 x[]; };
#define BITS_OF(i) (x[i].x | x[i].y & ~SIGN)
#else
layout(binding = 0) readonly buffer X { uint x[]; };
#if BITS == 32
#define BITS_OF(i) (x[i] & ~SIGN)
#elif BITS == 16
#define BITS_OF(i) (pm_load_u16(x, i) & ~SIGN)
#else
#define BITS_OF(i) pm_load_u8(x, i)
#endif
#endif
#if COUNTS
layout(binding = 1) writeonly buffer Y { uint y[]; };
#else
layout(binding = 1) writeonly buffer Y { uvec2 y[]; };
layout(binding = 2) readonly buffer S { uint starts[]; };
#endif
layout(push_constant) uniform parameter {
  uint elements, runs;
#if COUNTS
  uint x_offset, y_offset;
#else
  uint count;
  uint size[8];
  uint x_offset, y_offset, starts_offset;
#endif
} p;

void main() {
  const uint run = grid_invocation();
  const uint end = min((run + 1u) * RUN, p.elements);
#if COUNTS
  if (run > p.runs) return;
  uint count_nonzero = 0u;
  for (uint i = run * RUN; i < end; ++i) count_nonzero += uint(BITS_OF(p.x_offset + i) != 0u);
  y[p.y_offset + run] = count_nonzero;
#else
  if (run >= p.runs) return;
  uint column = starts[p.starts_offset + run];
  for (uint i = run * RUN; i < end; ++i) {
    if (BITS_OF(p.x_offset + i) == 0u) continue;
    uint rest = i;
    for (int axis = RANK - 1; axis >= 0 && column < p.count; --axis) {
      y[p.y_offset + uint(axis) * p.count + column] = uvec2(rest % p.size[axis], 0u);
      rest /= p.size[axis];
    }
    ++column;
  }
#endif
}

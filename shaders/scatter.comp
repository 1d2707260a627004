// ScatterElements, ScatterND: y[the element selected by the indices] = COMBINE(itself, x[id]). Updates with an index out of range are
// dropped.
//
// See include/gather_scatter.glsl for addressing. BITS: size of an element. REDUCE 0: an update replaces the element; if there are several,
// any one of them may win. Otherwise updates are combined atomically in any order; FROM(bits) and TO(value) convert between an element's
// bits and VALUE. One invocation per update.
// For all devices; 64-bit reductions require 64-bit atomics. Selected in cpp/operators/index/gather_scatter.cpp.
#version 450
#if BITS == 64 && REDUCE
#extension GL_EXT_shader_atomic_int64 : require
#endif
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#include "include/gather_scatter.glsl"
layout(local_size_x = LOCAL_SIZE) in;
#if BITS == 64
#if REDUCE
#define WORD uint64_t
#else
#define WORD uvec2
#endif
#define LANES 1u
#else
#define WORD uint
#define LANES (32u / uint(BITS))
#endif
layout(binding = 0) buffer Y { WORD y[]; };
layout(binding = 2) readonly buffer X { WORD x[]; };

void main() {
  const uint id = grid_invocation();
  uint target;
  if (id >= p.elements || !find_offset(id, target)) return;
  target += p.y_offset;
  const uint from = p.x_offset + id;
#if BITS >= 32 && !REDUCE
  y[target] = x[from];
#else
#if BITS >= 32
  const WORD mask = ~WORD(0);
  const uint shift = 0u, from_shift = 0u;
#else
  const uint mask = (1u << uint(BITS)) - 1u;
  const uint shift = target % LANES * uint(BITS), from_shift = from % LANES * uint(BITS);
#endif
  const WORD update = x[from / LANES] >> from_shift & mask;
  WORD current = atomicCompSwap(y[target / LANES], WORD(0), WORD(0)), expected;
  do {
    expected = current;
#if REDUCE
    const VALUE a = FROM(expected >> shift & mask), b = FROM(update);
    const WORD replacement = TO(COMBINE(a, b)) & mask;
#else
    const WORD replacement = update;
#endif
    current = atomicCompSwap(y[target / LANES], expected, expected & ~(mask << shift) | replacement << shift);
  } while (current != expected);
#endif
}

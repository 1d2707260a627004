// Deterministic scatter: y[target] = the element combined with its updates, in the order of their indices.
//
// order: update indices sorted by target, then by index. targets: from scatter_targets. The invocation of a target's first update, from
// `first` to `end`, applies all of them. FROM(bits) and TO(value) convert between an element's bits and VALUE; BITS: size of an element.
// For all devices. Selected in cpp/operators/index/gather_scatter.cpp.
#version 450
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
layout(local_size_x = LOCAL_SIZE) in;
#if BITS == 64
#define WORD uvec2
#else
#define WORD uint
#endif
layout(binding = 0) buffer Y { WORD y[]; };
layout(binding = 1) readonly buffer X { WORD x[]; };
layout(binding = 2) readonly buffer Targets { uint targets[]; };
layout(binding = 3) readonly buffer Order { uint order[]; };
layout(push_constant) uniform parameter { uint first, end, x_offset, y_offset; } p;

#if BITS == 8
#define LOAD_BITS(t, i) pm_load_u8(t, i)
#define STORE_BITS(i, v) pm_store_u8(y, i, v)
#elif BITS == 16
#define LOAD_BITS(t, i) pm_load_u16(t, i)
#define STORE_BITS(i, v) pm_store_u16(y, i, v)
#else
#define LOAD_BITS(t, i) t[i]
#define STORE_BITS(i, v) y[i] = v
#endif

void main() {
  const uint k = p.first + grid_invocation();
  if (k >= p.end) return;
  const uint target = targets[order[k]];
  if (target == INVALID_TARGET || (k > p.first && targets[order[k - 1u]] == target)) return;
  const uint to = p.y_offset + target;
  WORD combined_bits = LOAD_BITS(y, to);
  for (uint next = k; next < p.end && targets[order[next]] == target; ++next) {
    const WORD update = LOAD_BITS(x, p.x_offset + order[next]);
    const VALUE a = FROM(combined_bits), b = FROM(update);
    precise VALUE combined = COMBINE(a, b);
    combined_bits = TO(combined);
  }
  STORE_BITS(to, combined_bits);
}

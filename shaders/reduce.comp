// Folds up to four (coalesced) axes for each of up to four kept ones. A unit folds one part of one result's elements: an invocation,
// or with COOPERATE a workgroup. Several parts are folded by a further dispatch. The lowering gives, as macros, X_TYPE, LOAD(i),
// Y_TYPE, STORE(i, v), ACCUMULATOR, START, STEP(s, v, i) with i the element's number, MERGE(s, t) and FINISH(s, n).
#version 450
#if COOPERATE
layout(local_size_x = 256) in;
#else
layout(local_size_x = 64) in;
#endif
#include "include/math.glsl"
#include "include/tensor.glsl"
#ifndef EPILOGUE
#define EPILOGUE(x) (x)
#endif
layout(binding = 0) readonly buffer X { X_TYPE x[]; };
layout(binding = 1) buffer Y { Y_TYPE y[]; };
layout(push_constant) uniform parameter {
  uint results, parts, part_size;
  uint size;   // elements of a result in this dispatch
  uint count;  // and in all
  uint kept[4], kept_stride[4], y_stride[4];
  uint reduced[4], reduced_stride[4];
  uint x_offset, y_offset;
} p;

// Two sums of exponentials, each relative to its largest exponent (x), as one.
vec2 pm_merge_exponentials(vec2 s, vec2 t) {
  const float largest = pm_max(s.x, t.x);
  if (isinf(largest)) return vec2(largest, largest > 0.0 ? 1.0 : 0.0);
  return vec2(largest, s.y * exp(s.x - largest) + t.y * exp(t.x - largest));
}

// Where the best element is: (its bits, its number). BEATS(a, b) ranks elements; of equals the first is taken, or the last.
#ifdef BEATS
ACCUMULATOR pm_best(ACCUMULATOR s, ACCUMULATOR t) {
  if (s.y == START.y) return t;
  if (t.y == START.y || BEATS(ELEMENT(s.x), ELEMENT(t.x))) return s;
  return BEATS(ELEMENT(t.x), ELEMENT(s.x)) || (t.y < s.y) != LAST ? t : s;
}
#endif

#if COOPERATE
shared ACCUMULATOR meeting[gl_WorkGroupSize.x];

ACCUMULATOR gather(ACCUMULATOR s) {
  const uint id = gl_LocalInvocationID.x;
  meeting[id] = s;
  barrier();
  for (uint half_size = gl_WorkGroupSize.x / 2u; half_size > 0u; half_size /= 2u) {
    if (id < half_size) meeting[id] = MERGE(meeting[id], meeting[id + half_size]);
    barrier();
  }
  return meeting[0];
}
#endif

uint place_of(uint element) {
#if ONE_AXIS
  return element * p.reduced_stride[3];
#else
  const uint k = element / p.reduced[3], j = k / p.reduced[2], i = j / p.reduced[1];
  return (element - k * p.reduced[3]) * p.reduced_stride[3] + (k - j * p.reduced[2]) * p.reduced_stride[2] +
         (j - i * p.reduced[1]) * p.reduced_stride[1] + i * p.reduced_stride[0];
#endif
}

void main() {
  const uint group = gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x;
#if COOPERATE
  const uint unit = group, first = gl_LocalInvocationID.x, step = gl_WorkGroupSize.x;
#else
  const uint unit = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x, first = 0u, step = 1u;
#endif
  if (unit >= p.results * p.parts) return;
  const uint result = unit / p.parts, part = unit - result * p.parts;
  uint rest = result, base = p.x_offset, to = p.y_offset + part;
  for (int axis = 3; axis >= 0; --axis) {
    const uint at = rest % p.kept[axis];
    base += at * p.kept_stride[axis];
    to += at * p.y_stride[axis];
    rest /= p.kept[axis];
  }
  const uint end = min((part + 1u) * p.part_size, p.size);
  ACCUMULATOR s = START;
  for (uint element = part * p.part_size + first; element < end; element += step) s = STEP(s, LOAD(base + place_of(element)), element);
#if COOPERATE
  s = gather(s);
  if (gl_LocalInvocationID.x == 0u) STORE(to, FINISH(s, p.count));
#else
  STORE(to, FINISH(s, p.count));
#endif
}

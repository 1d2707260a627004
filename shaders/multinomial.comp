// For each uniform number of a row, the first of the row's classes whose sum with all before it exceeds that part of the whole: by
// bisection, as sums do not fall.
#version 450
layout(push_constant) uniform parameter {
  uint elements;
  uint samples, classes;
  uint sums_offset, uniform__offset, y_offset;
} p;
#include "include/dense.glsl"
layout(binding = 1) readonly buffer Sums { float sums[]; };
layout(binding = 2) readonly buffer Uniform { float uniform_[]; };

ELEMENT element(uint id) {
  const uint row = p.sums_offset + id / p.samples * p.classes;
  const float wanted = uniform_[p.uniform__offset + id] * sums[row + p.classes - 1u];
  uint first = 0u, last = p.classes - 1u;
  while (first < last) {
    const uint middle = (first + last) / 2u;
    if (sums[row + middle] > wanted)
      last = middle;
    else
      first = middle + 1u;
  }
#if BITS == 64
  return uvec2(first, 0u);
#else
  return first;
#endif
}

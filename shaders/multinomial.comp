// Multinomial sampling: for each uniform number u of a row, finds the first class whose prefix sum exceeds u times the total of the row.
//
// sums: float [rows, classes], prefix sums. uniform: float [rows, samples]. y: int32 or int64 [rows, samples]. One invocation draws one
// sample, by binary search.
// For all devices. Selected in cpp/operators/random/random.cpp.
#version 450
layout(push_constant) uniform parameter {
  uint elements;
  uint samples, classes;
  uint sums_offset, uniform__offset, y_offset;
} p;
#include "include/contiguous_output.glsl"
layout(binding = 1) readonly buffer Sums { float sums[]; };
layout(binding = 2) readonly buffer Uniform { float uniform_[]; };

ELEMENT element(uint id) {
  const uint row = p.sums_offset + id / p.samples * p.classes;
  const float target = uniform_[p.uniform__offset + id] * sums[row + p.classes - 1u];
  uint first = 0u, last = p.classes - 1u;
  while (first < last) {
    const uint middle = (first + last) / 2u;
    if (sums[row + middle] > target)
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

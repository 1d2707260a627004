// Resize along one axis: each element is a weighted sum of `taps` elements, by tables of indices and weights that the host computes.
//
// x: [outer, x_size, inner], y: [outer, size, inner]; intermediate tensors are float (FIRST: x is the operator's input; LAST: y is its
// output). A first index below 0 gives `outside`. One invocation computes one element (or the elements of a word).
// For all devices. Selected in cpp/operators/resize/resize.cpp.
#version 450
#include "include/grid.glsl"
#include "include/tensor.glsl"
layout(local_size_x = 64) in;
#if FIRST
layout(binding = 0) readonly buffer X { sfp x[]; };
#define LOAD(i) pm_load(x, i)
#else
layout(binding = 0) readonly buffer X { float x[]; };
#define LOAD(i) x[i]
#endif
#if LAST
layout(binding = 1) writeonly buffer Y { sfp y[]; };
#else
layout(binding = 1) writeonly buffer Y { float y[]; };
#endif
layout(binding = 2) readonly buffer I { int indices[]; };
layout(binding = 3) readonly buffer W { float weights[]; };
layout(push_constant) uniform parameter {
  uint elements, inner;
  uint size, x_size;  // axis sizes of y and x
  uint taps;
  float outside;
  uint x_offset, y_offset, indices_offset, weights_offset;
} p;

float element(uint id) {
  const uint row = id / p.inner, first = row % p.size * p.taps;
  const uint base = p.x_offset + row / p.size * p.x_size * p.inner + id % p.inner;
  if (indices[p.indices_offset + first] < 0) return p.outside;
  float sum = 0.0;
  for (uint k = first; k < first + p.taps; ++k)
    sum += weights[p.weights_offset + k] * LOAD(base + uint(indices[p.indices_offset + k]) * p.inner);
  return sum;
}

void main() {
  const uint id = grid_invocation();
#if LAST && PM_GRAIN == 2
  const uint i = id * 2u;
  if (i >= p.elements) return;
  pm_store2(y, p.y_offset + i, element(i), i + 1u < p.elements ? element(i + 1u) : 0.0);
#elif LAST
  if (id < p.elements) pm_store(y, p.y_offset + id, element(id));
#else
  if (id < p.elements) y[p.y_offset + id] = element(id);
#endif
}

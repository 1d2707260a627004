// Makes first, first + step, ..: integers, floats and doubles, whose bits come as two words, low one first.
#version 450
#include "include/grid.glsl"
#include "include/tensor.glsl"
layout(local_size_x = LOCAL_SIZE) in;
layout(binding = 0) buffer Y { Y_TYPE y[]; };
layout(push_constant) uniform parameter {
  uint elements, begin;  // elements of this dispatch, and of those before it
  uint first[2], step[2];
  uint y_offset;
} p;
void main() {
  const uint i = grid_invocation();
  if (i >= p.elements) return;
  precise NUMBER v = VALUE(p.first) + COUNT(p.begin + i) * VALUE(p.step);
  STORE(p.y_offset + i, v);
}

// y[i] = first + (begin + i) * step, for integers, floats and doubles; first and step are passed as bits in two words, low word first.
//
// One invocation computes one element. For all devices; selected in cpp/operators/index/range.cpp and fill_operators.cpp.
#version 450
#include "include/grid.glsl"
#include "include/tensor.glsl"
layout(local_size_x = LOCAL_SIZE) in;
layout(binding = 0) buffer Y { Y_TYPE y[]; };
layout(push_constant) uniform parameter {
  uint elements, begin;  // number of elements in this dispatch, and in the dispatches before it
  uint first[2], step[2];
  uint y_offset;
} p;
void main() {
  const uint i = grid_invocation();
  if (i >= p.elements) return;
  precise NUMBER v = VALUE(p.first) + COUNT(p.begin + i) * VALUE(p.step);
  STORE(p.y_offset + i, v);
}

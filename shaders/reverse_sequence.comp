// ReverseSequence: reverses the first indices[batch] elements along the time axis; time and batch are the first two axes, in either order.
//
// See include/contiguous_output.glsl for y. Lengths are clamped to the axis size. For all devices; selected in
// cpp/operators/index/fill_operators.cpp.
#version 450
layout(push_constant) uniform parameter {
  uint elements, inner;
  uint size;        // size of the second axis
  uint time;        // size of the time axis
  uint time_first;  // 1: time is the first axis
  uint index_words;
  uint x_offset, y_offset, indices_offset;
} p;
#include "include/contiguous_output.glsl"
layout(binding = 1) readonly buffer I { int indices[]; };
layout(binding = 2) readonly buffer X { ELEMENT x[]; };

ELEMENT element(uint id) {
  const uint row = id / p.inner, first = row / p.size, second = row % p.size;
  const uint at = p.time_first != 0u ? first : second, batch = p.time_first != 0u ? second : first;
  const uint length = uint(clamp(indices[(p.indices_offset + batch) * p.index_words], 0, int(p.time)));
  const uint from = at < length ? length - 1u - at : at;
  const uint source = p.time_first != 0u ? from * p.size + second : first * p.size + from;
  return LOAD(x, p.x_offset + source * p.inner + id % p.inner);
}

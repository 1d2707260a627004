// A matrix in blocks as floats, [columns, depth]: see include/blocks.glsl. An invocation makes eight of them.
#version 450
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#define FLOATS 1
#include "include/blocks.glsl"

layout(local_size_x = LOCAL_SIZE) in;

float element(uint i) {
  const uint at = p.w_offset + i, block = i / p.depth * p.blocks + i % p.depth / p.block;
  return (integer_in(w[at / IN_WORD], at % IN_WORD) - zero_point(block)) * scale[block];
}

vec4 four(uint i) { return vec4(element(i), element(i + 1u), element(i + 2u), element(i + 3u)); }

void main() {
  const uint first = grid_invocation() * 8u;
  if (first + 8u <= p.elements) {
    const vec4 low = four(first), high = four(first + 4u);
    pm_store4(y, p.y_offset + first, low);
    pm_store4(y, p.y_offset + first + 4u, high);
    return;
  }
  for (uint i = first; i < p.elements; ++i) pm_store(y, p.y_offset + i, element(i));
}

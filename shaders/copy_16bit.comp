// y[y_first + i] = x[x_first + i] for 16-bit elements at any alignment.
//
// An invocation writes one word. If only half of a word is written, an atomic operation preserves the other half.
// For all devices. Used by cpp/dv/command_recorder.cpp.
#version 450
#include "include/grid.glsl"
layout(local_size_x = LOCAL_SIZE) in;
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) buffer Y { uint y[]; };
layout(push_constant) uniform parameter {
  uint x_first, y_first;  // offsets in 16-bit elements from the start of the binding
  uint count;
} p;

uint load_u16(uint i) { return x[(p.x_first + i) >> 1] >> ((p.x_first + i & 1u) * 16u) & 0xffffu; }

void main() {
  const uint word = grid_invocation();
  const uint low = word * 2u - p.y_first, high = low + 1u;  // wraps to above `count` if it precedes the first element
  if (low < p.count && high < p.count) {
    y[word] = load_u16(low) | load_u16(high) << 16;
  } else if (low < p.count) {
    atomicAnd(y[word], 0xffff0000u);
    atomicOr(y[word], load_u16(low));
  } else if (high < p.count) {
    atomicAnd(y[word], 0xffffu);
    atomicOr(y[word], load_u16(high) << 16);
  }
}

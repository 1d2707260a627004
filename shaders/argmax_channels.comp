// ArgMax over channels: y[pixel] = the index of the channel with the largest value, as a byte; ties go to the first channel, and NaN counts
// as the largest.
//
// x: fp16, channels blocked by 8: [channels / 8][pixels][8]. Each invocation writes one word, the indices of 4 pixels.
// For all devices. Selected in cpp/dv/ipu_lowering.cpp for the dv command "maximizer".
#version 450
layout(push_constant) uniform parameter {
  uint pixels, channels;
  uint x_offset;  // offset in elements
  uint y_offset;  // offset in bytes
} p;
#include "include/grid.glsl"
#include "include/byte_stores.glsl"
layout(local_size_x = LOCAL_SIZE) in;
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) buffer Y { uint y[]; };

// Maps fp16 bits to an integer that sorts like the value; +0 and -0 are equal, NaN is the largest.
uint to_sort_key(uint bits) {
  const uint magnitude = bits & 0x7fffu;
  if (magnitude > 0x7c00u) return 0x10000u;
  return bits < 0x8000u ? 0x8000u + magnitude : 0x8000u - magnitude;
}

uint find_largest_channel(uint pixel) {
  uint best = 0u, channel = 0u;
  for (uint group = 0u; group < p.channels; group += 8u) {
    const uint count = min(8u, p.channels - group), first = p.x_offset + group * p.pixels + pixel * count;
    for (uint i = 0u; i < count; ++i) {
      const uint order = to_sort_key(pm_load_u16(x, first + i));
      if (order > best) best = order, channel = group + i;
    }
  }
  return channel;
}

void main() {
  const uint group = grid_group();
  const uint word = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x, byte = word * 4u, end = p.y_offset + p.pixels;
  if (byte >= end) return;
  const uint first = max(byte, p.y_offset) - byte, last = min(byte + 4u, end) - byte;
  uint indices = 0u;
  for (uint i = first; i < last; ++i) indices |= find_largest_channel(byte + i - p.y_offset) << 8u * i;
  pm_store_bytes(y, word, indices, first, last);
}

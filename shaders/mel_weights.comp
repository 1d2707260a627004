// Triangles of height 1 over the frequencies of a spectrum: triangle i rises from edge[i] to edge[i + 1] and falls to edge[i + 2].
#version 450
layout(push_constant) uniform parameter {
  uint elements, bins;
  uint y_offset;
} p;
#include "include/each_float.glsl"
layout(binding = 1) readonly buffer Edge { int edge[]; };

float element(uint id) {
  const uint i = id % p.bins;
  const int frequency = int(id / p.bins), low = edge[i], center = edge[i + 1u], high = edge[i + 2u];
  if (frequency == center) return 1.0;
  if (frequency >= low && frequency < center) return float(frequency - low) / float(center - low);
  return frequency > center && frequency < high ? float(high - frequency) / float(high - center) : 0.0;
}

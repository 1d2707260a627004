// MelWeightMatrix: y[frequency, i], triangles of height 1 that rise from edge[i] to edge[i + 1] and fall to edge[i + 2].
//
// edge: int, bins + 2 elements, computed on the host. One invocation computes one element (or the elements of a word).
// For all devices. Selected in cpp/operators/signal/dft.cpp.
#version 450
layout(push_constant) uniform parameter {
  uint elements, bins;
  uint y_offset;
} p;
#include "include/contiguous_float_output.glsl"
layout(binding = 1) readonly buffer Edge { int edge[]; };

float element(uint id) {
  const uint i = id % p.bins;
  const int frequency = int(id / p.bins), low = edge[i], center = edge[i + 1u], high = edge[i + 2u];
  if (frequency == center) return 1.0;
  if (frequency >= low && frequency < center) return float(frequency - low) / float(center - low);
  return frequency > center && frequency < high ? float(high - frequency) / float(high - center) : 0.0;
}

// BatchNormalization per channel, as factors for norm_apply: y[c] = (mean, scale / sqrt(variance + epsilon), bias, 0).
//
// All buffers are float [channels], y is vec4 [channels]. One invocation computes one channel.
// For all devices. Selected in cpp/operators/normalization/normalization.cpp.
#version 450
#include "include/grid.glsl"
#include "include/math.glsl"
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer Scale { float scale[]; };
layout(binding = 1) readonly buffer Bias { float bias[]; };
layout(binding = 2) readonly buffer Mean { float mean[]; };
layout(binding = 3) readonly buffer Variance { float variance[]; };
layout(binding = 4) writeonly buffer Y { vec4 y[]; };
layout(push_constant) uniform parameter { uint channels; float epsilon; } p;
void main() {
  const uint i = grid_invocation();
  if (i >= p.channels) return;
  const float factor = scale[i] * pm_divide(1.0, pm_sqrt(variance[i] + p.epsilon));
  y[i] = vec4(mean[i], factor, bias[i], 0.0);
}

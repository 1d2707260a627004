// y = (x - mean) * factor + bias per (image, channel), then the epilogue: the last step of the normalisations, and BatchNormalization.
//
// The mean is subtracted first, because x * factor and mean * factor may be large compared with their difference. factors: vec4 (mean,
// factor, bias, residual of the mean); factor_stride_n = 0 shares them among images.
// An invocation computes one element, or VEC4: four channels. PLANES: dense planes of whole vec4s; an invocation computes one vec4, or two
// if a vec4 has 8 bytes.
//
// For all devices. Selected in cpp/operators/normalization/normalization.cpp.
#version 450
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/epilogue.glsl"
#include "include/tensor.glsl"
#include "include/mixed_precision.glsl"
layout(local_size_x = LOCAL_SIZE) in;
#if VEC4 || PLANES
layout(binding = 0) readonly buffer X { XFP4 x[]; };
layout(binding = 2) writeonly buffer Y { YFP4 y[]; };
#else
layout(binding = 0) readonly buffer X { XFP x[]; };
layout(binding = 2) buffer Y { YFP y[]; };
#endif
layout(binding = 1) readonly buffer F { vec4 factors[]; };  // mean, factor, bias, residual of the mean
layout(push_constant) uniform parameter {
  uint elements;           // VEC4, PLANES: counts vec4s
  uint channels;           // VEC4: counts vec4s of channels
  uint factor_stride_n;    // number of channels, or 0 if all images share the factors
#if PLANES
  uint vec4_per_plane;              // vec4s per plane
#else
  uint height, width;
  uint x_stride_n, x_stride_h, x_stride_w, x_stride_c;
  uint y_stride_n, y_stride_h, y_stride_w, y_stride_c;
  uint channels_fastest;
#endif
  uint x_offset, y_offset;
#if RESIDUAL
  uint residual_offset;
#endif
} p;
#if RESIDUAL
#if VEC4 || PLANES
layout(binding = 3) readonly buffer R { RFP4 residual[]; };
vec4 apply_epilogue(vec4 v, uint at) { return epilogue(v, R4_AT((at - p.y_offset + p.residual_offset) / 4u)); }
#else
layout(binding = 3) readonly buffer R { RFP residual[]; };
float apply_epilogue(float v, uint at) { return epilogue(v, R_AT(at - p.y_offset + p.residual_offset)); }
#endif
#else
#define apply_epilogue(v, at) epilogue(v)
#endif

float normalize(float x, uint f) {
  precise float distance = (x - factors[f].x) - factors[f].w;
  return distance * factors[f].y + factors[f].z;
}

#if PLANES
void main() {
  const uint group = grid_group();
  for (uint k = 0u; k < PM_GRAIN; ++k) {
    const uint i = (group * PM_GRAIN + k) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (i >= p.elements) return;
    const uint plane = i / p.vec4_per_plane, image = plane / p.channels;
    const vec4 factor = factors[image * p.factor_stride_n + plane - image * p.channels];
    precise vec4 distance = X4_AT(p.x_offset / 4u + i) - factor.x - factor.w;
    const vec4 v = distance * factor.y + factor.z;
    SET_Y4(p.y_offset / 4u + i, apply_epilogue(v, p.y_offset + i * 4u));
  }
}
#else
void main() {
  uint rest = grid_invocation();
  if (rest >= p.elements) return;
  uint c, h, w;
  if (p.channels_fastest != 0u) {
    c = rest % p.channels; rest /= p.channels;
    w = rest % p.width; rest /= p.width;
    h = rest % p.height; rest /= p.height;
  } else {
    w = rest % p.width; rest /= p.width;
    h = rest % p.height; rest /= p.height;
    c = rest % p.channels; rest /= p.channels;
  }
#if VEC4
  c *= 4u;
#endif
  const uint from = p.x_offset + rest * p.x_stride_n + h * p.x_stride_h + w * p.x_stride_w + c * p.x_stride_c;
  const uint to = p.y_offset + rest * p.y_stride_n + h * p.y_stride_h + w * p.y_stride_w + c * p.y_stride_c;
  const uint f = rest * p.factor_stride_n + c;
#if VEC4
  const vec4 v = X4_AT(from >> 2);
  const vec4 results = vec4(normalize(v.x, f), normalize(v.y, f + 1u), normalize(v.z, f + 2u), normalize(v.w, f + 3u));
  SET_Y4(to >> 2, apply_epilogue(results, to));
#else
  SET_Y(to, apply_epilogue(normalize(X_AT(from), f), to));
#endif
}
#endif

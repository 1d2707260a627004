// What the contraction kernels for CPU drivers share: their packed weights and their loads of the input.
// KV: channels of the input a step. X_VEC4: they are neighbours in memory, four at a time. Y_VEC4: so are those of the output.
//
// Packed weights: [channels_out / 16][kernel_taps][channels_in / KV][16][4], the last for channels of the input.
#define PACKED_GROUP ((p.channels_out + 15u) / 16u * KERNEL_TAPS * ((p.channels_in + uint(KV) - 1u) / uint(KV)) * 64u)
#include "include/contraction.glsl"
#include "include/contraction_arrays.glsl"

const uint kChannels = 16u, kLanes = 8u;  // output channels of a workgroup; its invocations, which are a subgroup

Number4 load_x(uint index, uint channel) {
#if X_VEC4
  return LOAD_X4(index + x_channel(channel));
#else
  Number4 v = Number4(0);
  const uint last = p.channels_in - 1u;
  v.x = LOAD_X(index + channel * p.x_stride_c);
#if KV > 1
  v.y = LOAD_X(index + min(channel + 1u, last) * p.x_stride_c);
#endif
#if KV > 2
  v.z = LOAD_X(index + min(channel + 2u, last) * p.x_stride_c);
#endif
#if KV > 3
  v.w = LOAD_X(index + min(channel + 3u, last) * p.x_stride_c);
#endif
  return v;
#endif
}

// Weight packing and input loads of the GEMM and convolution kernels for CPU drivers.
// KV: input channels per step. X_VEC4, Y_VEC4: input or output channels in vec4s.
//
// Packed weights: [channels_out / 16][kernel_taps][channels_in / KV][16][4], the last axis for input channels.
#define PACKED_GROUP ((p.channels_out + 15u) / 16u * KERNEL_TAPS * ((p.channels_in + uint(KV) - 1u) / uint(KV)) * 64u)
#include "include/conv_gemm.glsl"
#include "include/conv_gemm_buffers.glsl"

const uint kChannels = 16u, kLanes = 8u;  // output channels per workgroup; invocations per workgroup, one subgroup

Acc4 load_x(uint index, uint channel) {
#if X_VEC4
  return LOAD_X4(index + x_channel(channel));
#else
  Acc4 v = Acc4(0);
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

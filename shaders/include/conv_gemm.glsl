// Geometry shared by the GEMM and convolution kernels. Output pixel (n, i, j) sums over taps (th, tw) and input channels:
//   ih = i * in_step_h + th * tap_step_h + base_h, and likewise iw; zero outside the input.
// Pixels are numbered across the batch; grid_group().z is the group. X_GROUPED, Y_GROUPED: channels in blocks of 8, one group only.
// MATRIX: a GEMM as a 1x1 convolution: pixels are M, output channels N, input channels K, groups the batch.
// INTEGER: int8 or uint8 (X_SIGNED, W_SIGNED) in arrays of words, with int32 accumulation. X_ZERO, W_ZERO: x and w have zero points: for x
// one per row (a single one for a convolution), for w one per channel.
#include "include/mixed_precision.glsl"
layout(push_constant) uniform parameter {
  uint pixels;                      // number of output pixels: images * out_h * out_w
  uint out_h, out_w;                // output size of this dispatch
#if MATRIX
#if INTEGER
  uint x_zero_first, x_zero_row, x_zero_group;
  uint w_zero_first, w_zero_column, w_zero_group;
#else
#if SPLIT_FP16
  int w_exponent;                   // w is multiplied by 2^w_exponent
#endif
  float b_scale;                    // scale of the added matrix (HAS_BIAS == 2)
  uint b_stride_row, b_stride_column;
  uint b_offset;
#endif
#else
  int in_h, in_w;
  int in_step_h, in_step_w;
  int tap_step_h, tap_step_w;
  int base_h, base_w;
  uint taps_h, taps_w;
  uint tap_first, tap_row, tap_column;  // index of tap (0, 0) in the packed kernel, and strides to the next tap
#if !RESIDUAL
  uint kernel_taps;                 // taps per packed kernel
#endif
#endif
  uint channels_in, channels_out;   // channels per group
  uint x_stride_n, x_stride_h, x_stride_w, x_stride_c;  // strides in elements
  uint y_stride_n, y_stride_h, y_stride_w, y_stride_c;
#if MATRIX
  uint x_stride_group, y_stride_group, w_stride_group;  // batch strides
#if W_STRIDED
  uint w_stride_in, w_stride_out;   // strides of unpacked w
#endif
#elif W_ZERO
  uint w_zero_first;                // first channel of this dispatch among the channels of all groups
#endif
#if HAS_BIAS == 1
  uint b_first;                     // first channel of this dispatch among the channels of all groups
#endif
  uint x_offset, y_offset, w_offset;
#if RESIDUAL
  uint residual_offset;
#endif
} p;

#if MATRIX
#define TAPS_H 1u
#define TAPS_W 1u
#define KERNEL_TAPS 1u
#define X_GROUP (grid_group().z * p.x_stride_group)
#define Y_GROUP (grid_group().z * p.y_stride_group)
#define W_GROUP (p.w_offset + grid_group().z * p.w_stride_group)
#else
#define TAPS_H p.taps_h
#define TAPS_W p.taps_w
#if RESIDUAL
#define KERNEL_TAPS (p.taps_h * p.taps_w)
#else
#define KERNEL_TAPS p.kernel_taps
#endif
// Number of packed weights per group; the channels of consecutive groups are adjacent.
#ifndef PACKED_GROUP
#define PACKED_GROUP (KERNEL_TAPS * p.channels_in * ((p.channels_out + 7u) / 8u * 8u))
#endif
#define X_GROUP (grid_group().z * p.channels_in * p.x_stride_c)
#define Y_GROUP (grid_group().z * p.channels_out * p.y_stride_c)
#define W_GROUP (p.w_offset + grid_group().z * PACKED_GROUP)
#endif

// Accumulator types.
#if INTEGER
#define Acc int
#define Acc4 ivec4
#define fused_multiply_add(a, b, sum) ((a) * (b) + (sum))
#else
#define Acc float
#define Acc4 vec4
#define fused_multiply_add(a, b, sum) fma(a, b, sum)
#endif

// Applies the epilogue to a sum at index `at` of y. RESIDUAL: the fused expression also reads a second tensor with the layout of y.
#if INTEGER
#define apply_epilogue(sum, at) (sum)
#else
#include "include/epilogue.glsl"
#if !RESIDUAL
#define apply_epilogue(sum, at) epilogue(sum)
#elif Y_VEC4
layout(binding = 6) readonly buffer R { RFP4 residual[]; };
vec4 apply_epilogue(vec4 sum, uint at) { return epilogue(sum, R4_AT((at - p.y_offset + p.residual_offset) >> 2)); }
#else
layout(binding = 6) readonly buffer R { RFP residual[]; };
float apply_epilogue(float sum, uint at) { return epilogue(sum, R_AT(at - p.y_offset + p.residual_offset)); }
#endif
#endif

// Returns batch item, row and column of a pixel.
uvec3 pixel_position(uint pixel) {
#if MATRIX
  return uvec3(0u, 0u, pixel);
#else
  const uint area = p.out_h * p.out_w;
  const uint n = pixel / area, rest = pixel - n * area;
  const uint i = rest / p.out_w;
  return uvec3(n, i, rest - i * p.out_w);
#endif
}

// Computes the index, within the batch item, of the input element that tap (th, tw) of an output pixel reads; returns false in the padding.
bool find_input_offset(uvec3 position, uint th, uint tw, out uint at) {
#if MATRIX
  at = position.z * p.x_stride_w;
  return true;
#else
  const int ih = int(position.y) * p.in_step_h + int(th) * p.tap_step_h + p.base_h;
  const int iw = int(position.z) * p.in_step_w + int(tw) * p.tap_step_w + p.base_w;
  const bool inside = ih >= 0 && ih < p.in_h && iw >= 0 && iw < p.in_w;
  at = inside ? uint(ih) * p.x_stride_h + uint(iw) * p.x_stride_w : 0u;
  return inside;
#endif
}

// Returns the filter tap of reduction index k.
uint k_to_tap(uint k) {
#if MATRIX
  return 0u;
#else
  return k / p.channels_in;
#endif
}

uint tap_index(uint th, uint tw) {
#if MATRIX
  return 0u;
#else
  return p.tap_first + th * p.tap_row + tw * p.tap_column;
#endif
}

// Offset of a channel from the pixel's first channel. X_GROUPED, Y_GROUPED: blocks of 8 adjacent channels, with a stride between blocks.
// X_VEC4: channels are adjacent.
uint x_channel(uint channel) {
#if X_GROUPED
  return (channel >> 3) * p.x_stride_c + (channel & 7u);
#elif X_VEC4
  return channel;
#else
  return channel * p.x_stride_c;
#endif
}

uint y_channel(uint channel) {
#if Y_GROUPED
  return (channel >> 3) * p.y_stride_c + (channel & 7u);
#else
  return channel * p.y_stride_c;
#endif
}

uint y_index(uvec3 position) { return p.y_offset + position.x * p.y_stride_n + position.y * p.y_stride_h + position.z * p.y_stride_w; }

// Bias. HAS_BIAS 1: a vector over the channels of all groups; 2: a matrix, broadcast with zero strides.
#if HAS_BIAS == 1
layout(binding = 3) readonly buffer B { Acc b[]; };
#elif HAS_BIAS == 2
layout(binding = 3) readonly buffer B { BFP b[]; };
#endif

Acc channel_bias(uint channel) {
#if HAS_BIAS == 1
  return b[p.b_first + grid_group().z * p.channels_out + min(channel, p.channels_out - 1u)];
#else
  return Acc(0);
#endif
}

Acc element_bias(uint pixel, uint channel) {
#if HAS_BIAS == 2
  return B_AT(p.b_offset + min(pixel, p.pixels - 1u) * p.b_stride_row + min(channel, p.channels_out - 1u) * p.b_stride_column) * p.b_scale;
#else
  return Acc(0);
#endif
}

#if INTEGER
#if X_SIGNED
#define LOAD_INTEGER(x, i) pm_load_i8(x, i)
#define UNPACK_X(word) pm_unpack_i8(word)
#else
#define LOAD_INTEGER(x, i) int(pm_load_u8(x, i))
#define UNPACK_X(word) pm_unpack_u8(word)
#endif
#if W_SIGNED
#define UNPACK_W(word) pm_unpack_i8(word)
#else
#define UNPACK_W(word) pm_unpack_u8(word)
#endif
#if X_ZERO
layout(binding = 4) readonly buffer XZero { int x_zero[]; };
#endif
#if W_ZERO
layout(binding = 5) readonly buffer WZero { int w_zero[]; };
#endif

int x_zero_point(uvec3 position) {
#if !X_ZERO
  return 0;
#elif MATRIX
  return x_zero[p.x_zero_first + position.z * p.x_zero_row + grid_group().z * p.x_zero_group];
#else
  return x_zero[0];
#endif
}

int w_zero_point(uint channel) {
#if !W_ZERO
  return 0;
#elif MATRIX
  return w_zero[p.w_zero_first + min(channel, p.channels_out - 1u) * p.w_zero_column + grid_group().z * p.w_zero_group];
#else
  return w_zero[p.w_zero_first + grid_group().z * p.channels_out + min(channel, p.channels_out - 1u)];
#endif
}
#endif

// Splits rows of float32 into fp16 hi and lo (include/split_fp16.glsl) for gemm_split_fp16.comp.
//
// x: float [rows, k_size], any strides; X_VEC4: aligned vec4s. y: per row, hi [k_size / 8] and lo [k_size / 8] in vec8s of fp16, then one
// vec8 whose first word is the exponent of the row's scale. If fp16 cannot represent the row, because its range is too large or a value is
// not finite, this word is FP32_ROW and the row contains the float32 values instead of hi and lo. Elements past k_size are zero. Workgroup
// = one row: reduce the largest and the smallest magnitude; scale, split and store.
//
// For devices that run gemm_split_fp16. Selected in cpp/operators/conv_gemm/gemm.cpp.
#version 450
#include "include/grid.glsl"
#include "include/split_fp16.glsl"
layout(local_size_x = LOCAL_SIZE) in;
#if X_VEC4
layout(binding = 0) readonly buffer X { uvec4 x[]; };
#else
layout(binding = 0) readonly buffer X { uint x[]; };
#endif
layout(binding = 1) writeonly buffer Y { uvec4 y[]; };
layout(push_constant) uniform parameter {
  uint rows, k_size;
  uint x_stride_row, x_stride_column;  // strides in elements
  uint x_offset, y_offset;
} p;

const uint kInfinity = 0x7f800000u;
const uint kLargest = 14u;           // exponent of the row's largest magnitude after scaling
const uint kMaxExponentRange = 28u;  // maximum exponent range of a row whose hi parts are all normal
const uint kMinExponent = 32u;       // minimum exponent of the largest magnitude; below it, small elements may be subnormal and flushed
const uint FP32_ROW = 0x80000000u;

shared uint largest, smallest;  // bits of the largest and of the smallest nonzero magnitude

void load(uint row, uint vec8_index, out uint bits[8]) {
  const uint first = p.x_offset + row * p.x_stride_row;
  for (uint i = 0u; i < 8u; ++i) {
    const uint at = vec8_index * 8u + i, from = first + min(at, p.k_size - 1u) * p.x_stride_column;
#if X_VEC4
    const uint word = x[from >> 2][from & 3u];
#else
    const uint word = x[from];
#endif
    bits[i] = at < p.k_size ? word : 0u;
  }
}

uvec4 pack_fp16(float v[8]) {
  return uvec4(packHalf2x16(vec2(v[0], v[1])), packHalf2x16(vec2(v[2], v[3])), packHalf2x16(vec2(v[4], v[5])), packHalf2x16(vec2(v[6], v[7])));
}

void main() {
  const uint row = grid_group(), num_vec8 = (p.k_size + 7u) / 8u, first = (p.y_offset >> 3) + row * (2u * num_vec8 + 1u);
  if (row >= p.rows) return;
  if (gl_LocalInvocationIndex == 0u) largest = 0u, smallest = ~0u;
  barrier();
  uint local_largest = 0u, local_smallest = ~0u;
  for (uint vec8_index = gl_LocalInvocationIndex; vec8_index < num_vec8; vec8_index += gl_WorkGroupSize.x) {
    uint bits[8];
    load(row, vec8_index, bits);
    for (uint i = 0u; i < 8u; ++i) {
      const uint size = bits[i] & 0x7fffffffu;
      local_largest = max(local_largest, size);
      if (size != 0u) local_smallest = min(local_smallest, size);
    }
  }
  atomicMax(largest, local_largest);
  atomicMin(smallest, local_smallest);
  barrier();
  const uint high_exponent = largest >> 23, low_exponent = smallest >> 23;
  const bool is_zero = largest == 0u;
  const bool fits = is_zero || (largest < kInfinity && high_exponent >= kMinExponent && low_exponent + kMaxExponentRange >= high_exponent);
  const int exponent = is_zero ? 0 : int(high_exponent) - 127 - int(kLargest);
  const float scale = power_of_two(fits ? -exponent : 0);
  if (gl_LocalInvocationIndex == 0u) y[first + 2u * num_vec8] = uvec4(fits ? uint(exponent) : FP32_ROW, 0u, 0u, 0u);
  for (uint vec8_index = gl_LocalInvocationIndex; vec8_index < num_vec8; vec8_index += gl_WorkGroupSize.x) {
    uint bits[8];
    load(row, vec8_index, bits);
    if (!fits) {
      y[first + 2u * vec8_index] = uvec4(bits[0], bits[1], bits[2], bits[3]);
      y[first + 2u * vec8_index + 1u] = uvec4(bits[4], bits[5], bits[6], bits[7]);
      continue;
    }
    float high[8], low[8];
    for (uint i = 0u; i < 8u; ++i) {
      const float scaled = uintBitsToFloat(bits[i]) * scale;
      high[i] = round_to_fp16(scaled), low[i] = fp16_remainder(scaled, high[i]);
    }
    y[first + vec8_index] = pack_fp16(high);
    y[first + num_vec8 + vec8_index] = pack_fp16(low);
  }
}

// Shared by the GEMM kernels with block-quantised weights:
// y[m, n] = sum over k of x[m, k] * (w[n, k] - zero[n, k / block]) * scale[n, k / block].
// w is N x K in BITS-bit integers, packed in words along K. ZERO: one zero point per block; otherwise all blocks have the zero point POINT.
// ROWS: rows of x per workgroup.
// X_VEC8: loads 8 elements of x at once. W_UVEC4: loads 16 bytes of w at once.
// GATED: GATE(x * second matrix) is the `residual` of the epilogue.
// NORMED: fused RMSNorm: x * gain is multiplied by the weights, and the sum is scaled by 1 / rms of the row.
layout(constant_id = 0) const uint ROWS = 1u;
#include "include/sign_flip.glsl"

#if FLOATS
#elif X_VEC8 && PM_GRAIN == 2
layout(binding = 0) readonly buffer X { uvec4 x[]; };
#elif X_VEC8
layout(binding = 0) readonly buffer X { vec4 x[]; };  // not vec8, because x_offset may be an odd multiple of 4
#else
layout(binding = 0) readonly buffer X { sfp x[]; };
#endif
#if W_UVEC4
layout(binding = 1) readonly buffer W { uvec4 w[]; };
#else
layout(binding = 1) readonly buffer W { uint w[]; };
#endif
// FRAGMENTS: scales and zero points are fp16; SCALES of them cover 128 K elements of a column.
#if FRAGMENTS
#if SCALES == 4
#define Scales f16vec4
#elif SCALES == 2
#define Scales f16vec2
#else
#define Scales float16_t
#endif
#else
#define Scales float
#endif
#if FRAGMENTS
// Returns the scale or zero point of K element `step` within a chunk of 128.
float scale_at(Scales scales, uint step) {
#if SCALES == 1
  return float(scales);
#else
  return float(scales[step / (128u / SCALES)]);
#endif
}
#endif
layout(binding = 2) readonly buffer Scale { Scales scale[]; };
#if FRAGMENTS && TRANSPOSED
layout(binding = 3) buffer Y { uvec4 y[]; };  // 8 fp16 values per element
#elif TRANSPOSED
layout(binding = 3) buffer Y { sfpvec4 y[]; };
#else
layout(binding = 3) buffer Y { sfp y[]; };
#endif
#if ZERO && FRAGMENTS
layout(binding = 4) readonly buffer Zero { Scales zero[]; };
#elif ZERO
layout(binding = 4) readonly buffer Zero { uint zero[]; };
#endif
#if GATED
layout(binding = 6) readonly buffer GateW { uvec4 gate_w[]; };
layout(binding = 7) readonly buffer GateScale { Scales gate_scale[]; };
#if ZERO && FRAGMENTS
layout(binding = 8) readonly buffer GateZero { Scales gate_zero[]; };
#elif ZERO
layout(binding = 8) readonly buffer GateZero { uint gate_zero[]; };
#endif
#endif
#if NORMED
layout(binding = 9) readonly buffer Gain { vec4 gain[]; };
#endif
layout(push_constant) uniform parameter {
#if FLOATS
  uint elements;
#else
  uint rows;
#endif
  uint k_size, columns, block, blocks;
  uint x_offset, w_offset, y_offset, zero_offset;
#if GATED
  uint gate_w_offset, gate_zero_offset;
#elif RESIDUAL
  uint residual_offset;
#endif
#if NORMED
  float epsilon;
#endif
} p;

// Applies the epilogue to a sum at index `at` of y; unused with FLOATS.
#if FLOATS
#elif GATED
float apply_gate(float x) {
  precise float y = GATE(x);
  return y;
}
#elif RESIDUAL
layout(binding = 5) readonly buffer R { sfp residual[]; };
float apply_epilogue(float sum, uint at) { return epilogue(sum, pm_load(residual, p.residual_offset + at)); }
#else
float apply_epilogue(float sum, uint at) { return epilogue(sum); }
#endif

const uint IN_WORD = 32u / BITS;

float extract_integer(uint word, uint k) {
#if SIGNED
  return float(bitfieldExtract(int(word), int(k * BITS), BITS));
#else
  return float(bitfieldExtract(word, int(k * BITS), BITS));
#endif
}

#if X_VEC8
// Loads 8 elements of x, 16-byte aligned.
void load_x_pair(uint at, out vec4 low, out vec4 high) {
#if PM_GRAIN == 2
  const uvec4 packed = x[at / 8u];
  low = vec4(pm_unpack_halves(packed.x), pm_unpack_halves(packed.y));
  high = vec4(pm_unpack_halves(packed.z), pm_unpack_halves(packed.w));
#else
  low = x[at / 4u];
  high = x[at / 4u + 1u];
#endif
}
#endif

#if !FRAGMENTS
float zero_point(uint block) {
#if ZERO
  const uint at = p.zero_offset + block;
  return extract_integer(zero[at / IN_WORD], at % IN_WORD);
#else
  return float(POINT);
#endif
}
#endif

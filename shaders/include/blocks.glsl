// Matrices of integers of BITS bits that have a scale, and with ZERO a zero point, for each block of the depth, and the products of rows,
// ROWS of them in a workgroup, with them: y[row, n] = sum of x[row, k] * (w[n, k] - zero[n, k / block]) * scale[n, k / block]. The words of
// w lie along the depth.
layout(constant_id = 0) const uint ROWS = 1u;

#ifndef X_ELEMENT
#define X_ELEMENT sfp
#define W_ELEMENT uint
#endif
layout(binding = 0) readonly buffer X { X_ELEMENT x[]; };
layout(binding = 1) readonly buffer W { W_ELEMENT w[]; };
layout(binding = 2) readonly buffer Scale { float scale[]; };
layout(binding = 3) buffer Y { sfp y[]; };
#if ZERO
layout(binding = 4) readonly buffer Zero { uint zero[]; };
#endif
layout(push_constant) uniform parameter {
  uint rows, depth, columns, block, blocks;
  uint x_offset, w_offset, y_offset, zero_offset;
} p;

const uint IN_WORD = 32u / BITS;

// What makes integers with a sign ones without, and what their zero point is then.
#if SIGNED
const uint kSigns = (BITS == 2u ? 0xaaaaaaaau : BITS == 4u ? 0x88888888u : 0x80808080u);
#define SIGN_BITS ^ kSigns
#define SIGN_ZERO float(1u << (BITS - 1u))
#else
#define SIGN_BITS
#define SIGN_ZERO 0.0
#endif

float integer_in(uint word, uint k) {
#if SIGNED
  return float(bitfieldExtract(int(word), int(k * BITS), BITS));
#else
  return float(bitfieldExtract(word, int(k * BITS), BITS));
#endif
}

float zero_point(uint block) {
#if ZERO
  const uint at = p.zero_offset + block;
  return integer_in(zero[at / IN_WORD], at % IN_WORD);
#else
  return 0.0;
#endif
}

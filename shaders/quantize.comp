// QuantizeLinear: y = saturate(round(x / scale) + zero_point), or with QUANTIZE 0 DequantizeLinear: y = (x - zero_point) * scale.
//
// Elements are viewed as [outer, size, inner]; scales and zero points (HAS_ZERO_POINT) are in blocks of `block` along the middle axis.
// QUANTIZED_TYPE: the type of a quantised element, int or float (float8, see include/low_precision.glsl).
// An invocation writes ELEMENTS_PER_WORD neighbouring elements: one word, or one float.
//
// For all devices. Selected in cpp/operators/quantize/quantize.cpp.
#version 450
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/low_precision.glsl"
#include "include/tensor.glsl"
layout(local_size_x = LOCAL_SIZE) in;
layout(binding = 0) readonly buffer X { X_TYPE x[]; };
layout(binding = 1) readonly buffer Scale { float scale[]; };
layout(binding = 2) buffer Y { Y_TYPE y[]; };
#if HAS_ZERO_POINT
layout(binding = 3) readonly buffer Zero { ZERO_TYPE zero[]; };
#endif
layout(push_constant) uniform parameter {
  uint elements, size, inner, block;
  uint s_outer, s_block, s_inner;
  int lowest, highest;
  uint saturates;
  uint x_offset, y_offset, zero_offset;
} p;

uint scale_index(uint i) {
  const uint row = i / p.inner;
  return row / p.size * p.s_outer + row % p.size / p.block * p.s_block + i % p.inner * p.s_inner;
}

QUANTIZED_TYPE zero_point(uint at) {
#if HAS_ZERO_POINT
  return QUANTIZED_TYPE(LOAD_ZERO(p.zero_offset + at));
#else
  return QUANTIZED_TYPE(0);
#endif
}

#if QUANTIZE && defined(LOW_PRECISION_EXPONENT)
uint convert_element(uint i) {
  const uint at = scale_index(i);
  return pm_encode_low_precision(floatBitsToUint(pm_divide(float(LOAD(p.x_offset + i)), scale[at]) + zero_point(at)), p.saturates != 0u);
}
#elif QUANTIZE
int convert_element(uint i) {
  const uint at = scale_index(i);
  const float v = pm_round_even(pm_divide(float(LOAD(p.x_offset + i)), scale[at])), zero = float(zero_point(at));
  const float lowest = float(p.lowest) - zero, highest = float(p.highest) - zero;
  return !(v > lowest) ? p.lowest : !(v < highest) ? p.highest : int(v) + zero_point(at);
}
#else
float convert_element(uint i) {
  const uint at = scale_index(i);
  return float(QUANTIZED_TYPE(LOAD(p.x_offset + i)) - zero_point(at)) * scale[at];
}
#endif

void main() {
  const uint first = grid_invocation() * ELEMENTS_PER_WORD;
  if (first >= p.elements) return;
#if QUANTIZE
  uint word = 0u;
  for (uint k = 0u; k < ELEMENTS_PER_WORD && first + k < p.elements; ++k) word |= (uint(convert_element(first + k)) & (1u << 32u / ELEMENTS_PER_WORD) - 1u) << 32u / ELEMENTS_PER_WORD * k;
  y[p.y_offset / ELEMENTS_PER_WORD + first / ELEMENTS_PER_WORD] = word;
#else
  STORE(p.y_offset + first, convert_element(first));
#endif
}

// Converts elements of 2, 4 and 8 bits (include/low_precision.glsl) to float32, or to int32 (INTEGERS), and back (ENCODE).
//
// SIGNED: signed integers. To convert a float to an integer, it is truncated to int32 and the low bits are kept. An invocation writes one
// word.
// For all devices. Selected in cpp/operators/common/low_precision_cast.cpp.
#version 450
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/low_precision.glsl"
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { X_TYPE x[]; };
layout(binding = 1) writeonly buffer Y { uint y[]; };
layout(push_constant) uniform parameter {
  uint elements;
  uint x_offset, y_offset;
} p;

uint encode(X_TYPE v) {
#ifdef LOW_PRECISION_EXPONENT
  return pm_encode_low_precision(v, SATURATE != 0);
#elif INTEGERS
  return v;
#else
  return uint(pm_to_int(uintBitsToFloat(v)));
#endif
}

void main() {
  const uint id = grid_invocation();
#if ENCODE
  const uint first = id * LOW_PRECISION_PER_WORD;
  if (first >= p.elements) return;
  uint word = 0u;
  for (uint k = 0u; k < LOW_PRECISION_PER_WORD && first + k < p.elements; ++k)
    word |= (encode(x[p.x_offset + first + k]) & (1u << LOW_PRECISION_BITS) - 1u) << k * LOW_PRECISION_BITS;
  y[p.y_offset / LOW_PRECISION_PER_WORD + id] = word;
#else
  if (id >= p.elements) return;
  const uint code = LOW_PRECISION_LOAD(x, p.x_offset + id);
#ifdef LOW_PRECISION_EXPONENT
  y[p.y_offset + id] = pm_decode_low_precision(code);
#else
  const int value = SIGNED != 0 ? bitfieldExtract(int(code), 0, LOW_PRECISION_BITS) : int(code);
  y[p.y_offset + id] = INTEGERS != 0 ? uint(value) : floatBitsToUint(float(value));
#endif
#endif
}

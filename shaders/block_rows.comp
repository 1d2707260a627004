// Products of a few rows with integers of BITS bits that have a scale, and with ZERO a zero point, for each block of the depth:
// y[row, n] = sum of x[row, k] * (w[n, k] - zero[n, k / block]) * scale[n, k / block]. A workgroup makes one column of all ROWS rows; it
// is bound by the reading of w, whose words lie along the depth.
#version 450
#extension GL_EXT_control_flow_attributes : require
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/epilogue.glsl"
#include "include/tensor.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint ROWS = 1u;

layout(binding = 0) readonly buffer X { sfp x[]; };
layout(binding = 1) readonly buffer W { uint w[]; };
layout(binding = 2) readonly buffer Scale { float scale[]; };
layout(binding = 3) buffer Y { sfp y[]; };
#if ZERO
layout(binding = 4) readonly buffer Zero { uint zero[]; };
#endif
layout(push_constant) uniform parameter {
  uint depth, columns, block, blocks;
  uint x_offset, w_offset, y_offset, zero_offset;
} p;

const uint IN_WORD = 32u / BITS;
shared float parts[ROWS * 64u];

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

void main() {
  const uint column = grid_group(), lane = gl_LocalInvocationIndex;
  if (column >= p.columns) return;
  const uint words = p.depth / IN_WORD, first = p.w_offset / IN_WORD + column * words;
  float sums[ROWS];
  [[unroll]] for (uint row = 0u; row < ROWS; ++row) sums[row] = 0.0;
  for (uint i = lane; i < words; i += 64u) {
    const uint word = w[first + i], k = i * IN_WORD, block = column * p.blocks + k / p.block;
    const float least = zero_point(block), unit = scale[block];
    float values[IN_WORD];
    [[unroll]] for (uint j = 0u; j < IN_WORD; ++j) values[j] = (integer_in(word, j) - least) * unit;
    [[unroll]] for (uint row = 0u; row < ROWS; ++row)
      [[unroll]] for (uint j = 0u; j < IN_WORD; ++j) sums[row] = fma(pm_load(x, p.x_offset + row * p.depth + k + j), values[j], sums[row]);
  }
  [[unroll]] for (uint row = 0u; row < ROWS; ++row) parts[row * 64u + lane] = sums[row];
  for (uint apart = 32u; apart > 0u; apart /= 2u) {
    barrier();  // the sums from before are there
    if (lane < apart) [[unroll]] for (uint row = 0u; row < ROWS; ++row) parts[row * 64u + lane] += parts[row * 64u + lane + apart];
  }
  barrier();  // each row's sum is there
  if (lane < ROWS) pm_store(y, p.y_offset + lane * p.columns + column, epilogue(parts[lane * 64u]));
}

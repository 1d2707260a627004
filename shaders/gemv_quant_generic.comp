// GEMV with block-quantised weights, memory-bound in w. See include/quant_weights.glsl for the formula and the buffers.
//
// Workgroup = one output column for all ROWS rows; its 64 invocations split K word by word and reduce in shared memory.
//
// For any device. Selected in cpp/operators/conv_gemm/quant_gemm.cpp (block_tiling) for up to 4 rows if no other kernel fits.
#version 450
#extension GL_EXT_control_flow_attributes : require
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/epilogue.glsl"
#include "include/tensor.glsl"
#include "include/quant_weights.glsl"

layout(local_size_x = 64) in;

shared float parts[ROWS * 64u];

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
    barrier();
    if (lane < apart) [[unroll]] for (uint row = 0u; row < ROWS; ++row) parts[row * 64u + lane] += parts[row * 64u + lane + apart];
  }
  barrier();
  if (lane < ROWS) pm_store(y, p.y_offset + lane * p.columns + column, finished(parts[lane * 64u], lane * p.columns + column));
}

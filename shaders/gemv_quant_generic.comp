// GEMV with block-quantised weights, memory-bound in w. See include/quant_weights.glsl for the formula and the buffers.
//
// Workgroup = one output column for all ROWS rows; its 64 invocations split K word by word and reduce in shared memory.
//
// For any device. Selected in cpp/operators/conv_gemm/quant_gemm.cpp (select_quant_tiling) for up to 4 rows if no other kernel fits.
#version 450
#extension GL_EXT_control_flow_attributes : require
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/epilogue.glsl"
#include "include/tensor.glsl"
#include "include/quant_weights.glsl"

layout(local_size_x = 64) in;

shared float partials[ROWS * 64u];

void main() {
  const uint column = grid_group(), lane = gl_LocalInvocationIndex;
  if (column >= p.columns) return;
  const uint words = p.k_size / IN_WORD, first = p.w_offset / IN_WORD + column * words;
  float sums[ROWS];
  [[unroll]] for (uint row = 0u; row < ROWS; ++row) sums[row] = 0.0;
  for (uint i = lane; i < words; i += 64u) {
    const uint word = w[first + i], k = i * IN_WORD, block = column * p.blocks + k / p.block;
    const float zero_value = zero_point(block), scale_value = scale[block];
    float values[IN_WORD];
    [[unroll]] for (uint j = 0u; j < IN_WORD; ++j) values[j] = (extract_integer(word, j) - zero_value) * scale_value;
    [[unroll]] for (uint row = 0u; row < ROWS; ++row)
      [[unroll]] for (uint j = 0u; j < IN_WORD; ++j) sums[row] = fma(pm_load(x, p.x_offset + row * p.k_size + k + j), values[j], sums[row]);
  }
  [[unroll]] for (uint row = 0u; row < ROWS; ++row) partials[row * 64u + lane] = sums[row];
  for (uint stride = 32u; stride > 0u; stride /= 2u) {
    barrier();
    if (lane < stride) [[unroll]] for (uint row = 0u; row < ROWS; ++row) partials[row * 64u + lane] += partials[row * 64u + lane + stride];
  }
  barrier();
  if (lane < ROWS) pm_store(y, p.y_offset + lane * p.columns + column, apply_epilogue(partials[lane * 64u], lane * p.columns + column));
}

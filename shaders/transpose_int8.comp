// Packs a byte matrix with contiguous columns into rows of whole 16-byte pieces, padded with PAD.
//
// x: bytes, [rows, k_size] with strides x_row and x_stride_k. y: [rows][words]. An invocation writes one word; neighbours write the same
// word of neighbouring rows.
//
// For gemm_int8.comp. Selected in cpp/operators/conv_gemm/int8_gemm.cpp.
#version 450
#include "include/grid.glsl"
#include "include/tensor.glsl"
layout(local_size_x = LOCAL_SIZE) in;
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) writeonly buffer Y { uint y[]; };
layout(push_constant) uniform parameter {
  uint rows, k_size, words;  // words per row of y
  uint x_row, x_stride_k;    // strides in elements
  uint x_offset, y_offset;   // x_offset in bytes, y_offset in words
} p;
void main() {
  const uint id = grid_invocation();
  const uint word = id / p.rows, row = id - word * p.rows;
  if (word >= p.words) return;
  uvec4 bytes;
  for (uint i = 0u; i < 4u; ++i) {
    const uint k = word * 4u + i;
    bytes[i] = k < p.k_size ? pm_load_u8(x, p.x_offset + row * p.x_row + min(k, p.k_size - 1u) * p.x_stride_k) : PAD;
  }
  y[p.y_offset + row * p.words + word] = pm_pack_u8(bytes);
}

// y[row] = sum of the signed bytes of a row, as int32. FLIP is XORed into every word first, to turn unsigned bytes into signed ones.
//
// x: [rows][pad_rows] pieces of 16 bytes. Workgroup = one row, 64 invocations that reduce in shared memory.
// For gemm_int8.comp. Selected in cpp/operators/conv_gemm/int8_gemm.cpp.
#version 450
#define GROUP_THREADS 64
layout(local_size_x = GROUP_THREADS) in;
#include "include/grid.glsl"
#include "include/tensor.glsl"
#include "include/thread_group.glsl"
layout(binding = 0) readonly buffer X { uvec4 x[]; };
layout(binding = 1) writeonly buffer Y { int y[]; };
layout(push_constant) uniform parameter {
  uint rows, pad_rows;
  uint x_offset, y_offset;  // x_offset: X_UNIT per 16 bytes; y_offset: in elements
} p;
shared int group_partials[GROUP_THREADS + 16];
PM_DEFINE_GROUP_REDUCE(reduce_sum, int, group_partials, pm_sum)
void main() {
  const uint row = grid_group();
  if (row >= p.rows) return;
  ivec4 sums = ivec4(0);
  for (uint i = gl_LocalInvocationID.x; i < p.pad_rows; i += GROUP_THREADS) {
    const ivec4 words = ivec4(x[p.x_offset / X_UNIT + row * p.pad_rows + i] ^ FLIP);
    for (int byte = 0; byte < 4; ++byte) sums += bitfieldExtract(words, byte * 8, 8);
  }
  const int sum = reduce_sum((sums.x + sums.y) + (sums.z + sums.w));
  if (gl_LocalInvocationID.x == 0u) y[p.y_offset + row] = sum;
}

// Dequantises the rows in use of an int8 KV cache: y = x * scale of the row. Only the first counts[batch item] rows of a batch item are
// written.
//
// x: int8 [batch, heads, capacity, size]; scales: [batch, heads, capacity]; counts: int64 [batch]. An invocation converts four elements.
// For all devices. Selected in cpp/operators/attention/quantized_kv_cache.cpp.
#version 450
#include "include/grid.glsl"
#include "include/tensor.glsl"
layout(local_size_x = LOCAL_SIZE) in;
layout(push_constant) uniform parameter {
  uint words, words_per_row, capacity, heads;
  uint x_offset, scales_offset, counts_offset, y_offset;
} p;
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) readonly buffer Scales { sfp scales[]; };
layout(binding = 2) readonly buffer Counts { ivec2 counts[]; };
layout(binding = 3) writeonly buffer Y { sfpvec4 y[]; };

void main() {
  const uint id = grid_invocation();
  if (id >= p.words) return;
  const uint row = id / p.words_per_row;
  const ivec2 count = counts[p.counts_offset + row / p.capacity / p.heads];
  if (count.y < 0 || (count.y == 0 && row % p.capacity >= uint(count.x))) return;
  const vec4 levels = vec4(pm_unpack_i8(x[(p.x_offset >> 2) + id]));
  pm_store_vec4(y, (p.y_offset >> 2) + id, levels * pm_load(scales, p.scales_offset + row));
}

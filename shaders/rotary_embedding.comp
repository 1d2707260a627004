// RoPE: rotates the first p.rotary_dim elements of each head by cos/sin tables: y1 = cos x1 - sin x2, y2 = cos x2 + sin x1.
//
// x, y: [batch, heads, rows, size], any strides; only the last axis must be contiguous. cosines, sines: [table rows, rotary_dim / 2]. Row i
// of batch item b uses table row b * rows + i, or with HAS_POSITION_IDS row position_ids[b, i], or row 0 if that is out of range.
// INTERLEAVED: pairs are adjacent; otherwise they are rotary_dim / 2 apart. An invocation writes two adjacent elements.
// For all devices. Selected in cpp/operators/attention/rotary_embedding.cpp.
#version 450
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
layout(local_size_x = LOCAL_SIZE) in;
layout(push_constant) uniform parameter {
  uint pairs, heads, rows, size, rotary_dim;
#if HAS_POSITION_IDS
  uint table_rows;
#endif
  uint x_batch, x_head, x_row;
  uint y_batch, y_head, y_row;
  uint x_offset, y_offset, cosines_offset, sines_offset, position_ids_offset;
} p;
layout(binding = 0) readonly buffer X { sfp x[]; };
layout(binding = 1) readonly buffer Cosines { sfp cosines[]; };
layout(binding = 2) readonly buffer Sines { sfp sines[]; };
#if HAS_POSITION_IDS
layout(binding = 3) readonly buffer PositionIds { ivec2 position_ids[]; };
#endif
layout(binding = 4) buffer Y { sfp y[]; };

void main() {
  const uint id = grid_invocation();
  if (id >= p.pairs) return;
  const uint column = id % (p.size / 2u) * 2u, head_row = id / (p.size / 2u);
  const uint row = head_row % p.rows, head = head_row / p.rows % p.heads, batch = head_row / p.rows / p.heads;
  const uint from = p.x_offset + batch * p.x_batch + head * p.x_head + row * p.x_row;
  const uint half_dim = p.rotary_dim / 2u;
#if HAS_POSITION_IDS
  const ivec2 position = position_ids[p.position_ids_offset + batch * p.rows + row];
  const uint table = position.y == 0 && uint(position.x) < p.table_rows ? uint(position.x) * half_dim : 0u;
#else
  const uint table = (batch * p.rows + row) * half_dim;
#endif
  vec2 rotated;
  for (uint i = 0u; i < 2u; ++i) {
    const uint at = column + i;
    rotated[i] = pm_load(x, from + at);
    if (at >= p.rotary_dim) continue;
#if INTERLEAVED
    const bool is_first = i == 0u;
    const uint pair = at / 2u, other = is_first ? at + 1u : at - 1u;
#else
    const bool is_first = at < half_dim;
    const uint pair = is_first ? at : at - half_dim, other = is_first ? at + half_dim : at - half_dim;
#endif
    const float cosine = pm_load(cosines, p.cosines_offset + table + pair), sine = pm_load(sines, p.sines_offset + table + pair);
    rotated[i] = cosine * rotated[i] + (is_first ? -sine : sine) * pm_load(x, from + other);
  }
  pm_store2_any(y, p.y_offset + batch * p.y_batch + head * p.y_head + row * p.y_row + column, rotated.x, rotated.y);
}

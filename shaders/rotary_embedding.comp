// RoPE: rotates the first p.turned elements of each head by cos/sin tables: y1 = cos x1 - sin x2, y2 = cos x2 + sin x1.
//
// x, y: [batch, heads, rows, size], any strides except for the last axis. cosines, sines: [table rows, turned / 2]; row i of batch item b
// uses table row b * rows + i, or with PLACED the position in places, 0 if out of range. INTERLEAVED: pairs are adjacent; otherwise they
// are turned / 2 apart. An invocation writes two adjacent elements.
// For all devices. Selected in cpp/operators/attention/rotary_embedding.cpp.
#version 450
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
layout(local_size_x = LOCAL_SIZE) in;
layout(push_constant) uniform parameter {
  uint pairs, heads, rows, size, turned;
#if PLACED
  uint table_rows;
#endif
  uint x_batch, x_head, x_row;
  uint y_batch, y_head, y_row;
  uint x_offset, y_offset, cosines_offset, sines_offset, places_offset;
} p;
layout(binding = 0) readonly buffer X { sfp x[]; };
layout(binding = 1) readonly buffer Cosines { sfp cosines[]; };
layout(binding = 2) readonly buffer Sines { sfp sines[]; };
#if PLACED
layout(binding = 3) readonly buffer Places { ivec2 places[]; };
#endif
layout(binding = 4) buffer Y { sfp y[]; };

void main() {
  const uint id = grid_invocation();
  if (id >= p.pairs) return;
  const uint column = id % (p.size / 2u) * 2u, line = id / (p.size / 2u);
  const uint row = line % p.rows, head = line / p.rows % p.heads, image = line / p.rows / p.heads;
  const uint from = p.x_offset + image * p.x_batch + head * p.x_head + row * p.x_row;
  const uint apart = p.turned / 2u;
#if PLACED
  const ivec2 place = places[p.places_offset + image * p.rows + row];
  const uint table = place.y == 0 && uint(place.x) < p.table_rows ? uint(place.x) * apart : 0u;
#else
  const uint table = (image * p.rows + row) * apart;
#endif
  vec2 made;
  for (uint i = 0u; i < 2u; ++i) {
    const uint at = column + i;
    made[i] = pm_load(x, from + at);
    if (at >= p.turned) continue;
#if INTERLEAVED
    const bool is_first = i == 0u;
    const uint pair = at / 2u, other = is_first ? at + 1u : at - 1u;
#else
    const bool is_first = at < apart;
    const uint pair = is_first ? at : at - apart, other = is_first ? at + apart : at - apart;
#endif
    const float cosine = pm_load(cosines, p.cosines_offset + table + pair), sine = pm_load(sines, p.sines_offset + table + pair);
    made[i] = cosine * made[i] + (is_first ? -sine : sine) * pm_load(x, from + other);
  }
  pm_store2_any(y, p.y_offset + image * p.y_batch + head * p.y_head + row * p.y_row + column, made.x, made.y);
}

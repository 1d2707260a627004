// y = concat(zeros, cache[0 .. past), x): concatenates the rows in use of a KV cache and the new rows x, padded with zeros on the left to
// the capacity, as in a left-padded batch. cache, y: [batch, heads, capacity, size].
//
// Only the first `past` cache rows of a batch item are read. INT8: the cache is bytes, and each row has a scale.
// Grid (x, y, z) = (elements of a head, head, batch item). An invocation copies 16 bytes (WORDS), four elements (VEC4) or one element of a
// row.
//
// For all devices. Selected in cpp/operators/attention/left_padded_cache.cpp.
#version 450
#define GRID_AXES 3
#include "include/grid.glsl"
#include "include/tensor.glsl"
layout(local_size_x = 64) in;
layout(constant_id = 0) const uint ITEMS = 1u;  // items per row
layout(push_constant) uniform parameter {
  uint rows, room, heads, images;  // rows: new rows; room: capacity, also the rows of the result
  uint x_batch, x_head, x_row;
  uint cache_offset, x_offset, past_offset, y_offset;
#if INT8
  uint scales_offset;
#endif
} p;
#if WORDS
const uint STEP = 4u * uint(PM_GRAIN);  // number of elements in 16 bytes
#define ELEMENTS uvec4
#define VALUE uvec4
#define LOAD(from, at) from[(at) / STEP]
#define STORE(at, value) y[(at) / STEP] = value
#elif VEC4
const uint STEP = 4u;
#define ELEMENTS sfpvec4
#define VALUE vec4
#define LOAD(from, at) pm_load_vec4(from, (at) / STEP)
#define STORE(at, value) pm_store_vec4(y, (at) / STEP, value)
#else
const uint STEP = 1u;
#define ELEMENTS sfp
#define VALUE float
#define LOAD(from, at) pm_load(from, at)
#define STORE(at, value) pm_store(y, at, value)
#endif
#if INT8
layout(binding = 0) readonly buffer Cache { uint cache[]; };
layout(binding = 4) readonly buffer Scales { sfp scales[]; };
#else
layout(binding = 0) readonly buffer Cache { ELEMENTS cache[]; };
#endif
layout(binding = 1) readonly buffer X { ELEMENTS x[]; };
layout(binding = 2) readonly buffer Past { ivec2 past[]; };
layout(binding = 3) buffer Y { ELEMENTS y[]; };

// Loads elements of the cache from index `at` on; `row` is the index of their scale.
VALUE of_cache(uint at, uint row) {
#if INT8
  const vec4 four = vec4(pm_unpack_i8(cache[(p.cache_offset + at) >> 2])) * pm_load(scales, p.scales_offset + row);
#if VEC4
  return four;
#else
  return four[at & 3u];
#endif
#else
  return LOAD(cache, p.cache_offset + at);
#endif
}

void main() {
  const uint items = ITEMS * p.room;
  const uvec3 group = grid_group((items + gl_WorkGroupSize.x - 1u) / gl_WorkGroupSize.x, p.heads);
  const uint item = group.x * gl_WorkGroupSize.x + gl_LocalInvocationID.x, head = group.y, image = group.z;
  if (is_past_grid(group, p.images) || item >= items) return;
  const uint column = item % ITEMS * STEP, row = item / ITEMS, plane = image * p.heads + head, size = ITEMS * STEP;
  VALUE value = VALUE(0);
  const ivec2 given = past[p.past_offset + image];  // an int64 as two words
  const uint room = p.room - p.rows, used = given.y > 0 ? room : given.y < 0 ? 0u : min(uint(given.x), room), padding = room - used;
  if (row >= room) {
    value = LOAD(x, p.x_offset + image * p.x_batch + head * p.x_head + (row - room) * p.x_row + column);
  } else if (row >= padding) {
    const uint own = plane * p.room + row - padding;
    value = of_cache(own * size + column, own);
  }
  STORE(p.y_offset + (plane * p.room + row) * size + column, value);
}

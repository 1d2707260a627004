// y = concat(zeros, cache[0 .. past), x): appends the new rows x to the rows in use of a KV cache, and pads the result with zeros on the
// left to the capacity, as in a left-padded batch. cache, y: [batch, heads, capacity, size].
//
// Only the first `past` cache rows of a batch item are read. INT8: the cache is bytes, and each row has a scale.
// Grid (x, y, z) = (elements of a head, head, batch item). An invocation copies 16 bytes (LOAD_16_BYTES), four elements (VEC4) or one
// element of a row.
//
// For all devices. Selected in cpp/operators/attention/left_padded_cache.cpp.
#version 450
#define GRID_AXES 3
#include "include/grid.glsl"
#include "include/tensor.glsl"
layout(local_size_x = 64) in;
layout(constant_id = 0) const uint ITEMS_PER_ROW = 1u;  // items per row
layout(push_constant) uniform parameter {
  uint rows, capacity, heads, num_batches;  // rows: new rows; capacity: rows of the cache and of y
  uint x_batch, x_head, x_row;
  uint cache_offset, x_offset, past_offset, y_offset;
#if INT8
  uint scales_offset;
#endif
} p;
#if LOAD_16_BYTES
const uint ELEMENTS_PER_ITEM = 4u * uint(PM_GRAIN);  // number of elements in 16 bytes
#define ELEMENTS uvec4
#define VALUE uvec4
#define LOAD(from, at) from[(at) / ELEMENTS_PER_ITEM]
#define STORE(at, value) y[(at) / ELEMENTS_PER_ITEM] = value
#elif VEC4
const uint ELEMENTS_PER_ITEM = 4u;
#define ELEMENTS sfpvec4
#define VALUE vec4
#define LOAD(from, at) pm_load_vec4(from, (at) / ELEMENTS_PER_ITEM)
#define STORE(at, value) pm_store_vec4(y, (at) / ELEMENTS_PER_ITEM, value)
#else
const uint ELEMENTS_PER_ITEM = 1u;
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

// Loads elements of the cache, starting at index `at`; `row` is the index of their scale.
VALUE load_cache(uint at, uint row) {
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
  const uint items = ITEMS_PER_ROW * p.capacity;
  const uvec3 group = grid_group((items + gl_WorkGroupSize.x - 1u) / gl_WorkGroupSize.x, p.heads);
  const uint item = group.x * gl_WorkGroupSize.x + gl_LocalInvocationID.x, head = group.y, batch = group.z;
  if (is_past_grid(group, p.num_batches) || item >= items) return;
  const uint column = item % ITEMS_PER_ROW * ELEMENTS_PER_ITEM, row = item / ITEMS_PER_ROW, plane = batch * p.heads + head, size = ITEMS_PER_ROW * ELEMENTS_PER_ITEM;
  VALUE value = VALUE(0);
  const ivec2 past_length = past[p.past_offset + batch];  // an int64 as two words
  const uint capacity = p.capacity - p.rows, used_rows = past_length.y > 0 ? capacity : past_length.y < 0 ? 0u : min(uint(past_length.x), capacity), padding = capacity - used_rows;
  if (row >= capacity) {
    value = LOAD(x, p.x_offset + batch * p.x_batch + head * p.x_head + (row - capacity) * p.x_row + column);
  } else if (row >= padding) {
    const uint cache_row = plane * p.capacity + row - padding;
    value = load_cache(cache_row * size + column, cache_row);
  }
  STORE(p.y_offset + (plane * p.capacity + row) * size + column, value);
}

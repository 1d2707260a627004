// Dense rows of whole vec4s in registers: GROUP_THREADS invocations per row, ITEMS_PER_THREAD vec4s per invocation, THREAD_GROUPS rows per
// workgroup. Include it after include/tensor.glsl and the parameter block `p` with rows, vec4_per_row, x_offset and y_offset.
layout(local_size_x = GROUP_THREADS * THREAD_GROUPS) in;
#include "include/grid.glsl"
#include "include/thread_group.glsl"
#include "include/mixed_precision.glsl"
#if HOLDS_FP16
layout(binding = 0) readonly buffer X { uvec2 x[]; };
#else
layout(binding = 0) readonly buffer X { XFP4 x[]; };
#endif
layout(binding = 2) writeonly buffer Y { YFP4 y[]; };
shared float reduce_buffer[GROUP_THREADS * THREAD_GROUPS + 16u];
PM_DEFINE_GROUP_REDUCE(reduce_sum, float, reduce_buffer, pm_sum)
PM_DEFINE_GROUP_REDUCE(reduce_max, float, reduce_buffer, max)

#if HOLDS_FP16
uvec2 regs[ITEMS_PER_THREAD];
vec4 row_vec4(uint k) { return vec4(pm_unpack_halves(regs[k].x), pm_unpack_halves(regs[k].y)); }
#else
vec4 regs[ITEMS_PER_THREAD];
vec4 row_vec4(uint k) { return regs[k]; }
#endif

// regs[k] of an invocation contains vec4 ROW_VEC4_INDEX(k) of its row. Invocations past the last row have no vec4s, but reach all barriers.
#define ROW_INDEX (grid_group() * THREAD_GROUPS + THREAD_GROUP_INDEX)
#define ROW_VEC4_INDEX(k) (THREAD_IN_GROUP + (k) * GROUP_THREADS)
#define FOR_THREAD_ITEMS(k) [[unroll]] for (uint k = 0u; k < ITEMS_PER_THREAD; ++k)
#define HAS_VEC4(k) (ROW_INDEX < p.rows && ROW_VEC4_INDEX(k) < p.vec4_per_row)

void load_row(float padding) {
  const uint from = p.x_offset / 4u + ROW_INDEX * p.vec4_per_row;
#if HOLDS_FP16
  FOR_THREAD_ITEMS(k) regs[k] = HAS_VEC4(k) ? x[from + ROW_VEC4_INDEX(k)] : uvec2(packHalf2x16(vec2(padding)));
#else
  FOR_THREAD_ITEMS(k) regs[k] = HAS_VEC4(k) ? X4_AT(from + ROW_VEC4_INDEX(k)) : vec4(padding);
#endif
}

void store_vec4(uint k, vec4 v) { SET_Y4(p.y_offset / 4u + ROW_INDEX * p.vec4_per_row + ROW_VEC4_INDEX(k), v); }

// Dense rows of whole vec4s in registers: TEAM invocations per row, HELD vec4s per invocation, TEAMS rows per workgroup. Include it after
// include/tensor.glsl and the parameter block `p` with rows, quads (vec4s per row), x_offset and y_offset.
layout(local_size_x = TEAM * TEAMS) in;
#include "include/grid.glsl"
#include "include/thread_group.glsl"
#include "include/mixed_precision.glsl"
#if HOLDS_HALVES
layout(binding = 0) readonly buffer X { uvec2 x[]; };
#else
layout(binding = 0) readonly buffer X { XFP4 x[]; };
#endif
layout(binding = 2) writeonly buffer Y { YFP4 y[]; };
shared float meeting[TEAM * TEAMS + 16u];
PM_GATHER(gather_sum, float, meeting, pm_sum)
PM_GATHER(gather_largest, float, meeting, max)

#if HOLDS_HALVES
uvec2 held[HELD];
vec4 held_four(uint k) { return vec4(pm_unpack_halves(held[k].x), pm_unpack_halves(held[k].y)); }
#else
vec4 held[HELD];
vec4 held_four(uint k) { return held[k]; }
#endif

// Register vec4 k of an invocation is vec4 FOUR(k) of its row. Invocations past the last row have none, but reach all barriers.
#define ROW (grid_group() * TEAMS + TEAM_NUMBER)
#define FOUR(k) (TEAM_MEMBER + (k) * TEAM)
#define FOR_HELD(k) [[unroll]] for (uint k = 0u; k < HELD; ++k)
#define HAS_FOUR(k) (ROW < p.rows && FOUR(k) < p.quads)

void hold_row(float beyond) {
  const uint from = p.x_offset / 4u + ROW * p.quads;
#if HOLDS_HALVES
  FOR_HELD(k) held[k] = HAS_FOUR(k) ? x[from + FOUR(k)] : uvec2(packHalf2x16(vec2(beyond)));
#else
  FOR_HELD(k) held[k] = HAS_FOUR(k) ? X4_AT(from + FOUR(k)) : vec4(beyond);
#endif
}

void store_four(uint k, vec4 v) { SET_Y4(p.y_offset / 4u + ROW * p.quads + FOUR(k), v); }

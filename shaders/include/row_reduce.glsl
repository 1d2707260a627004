// Row-wise reductions and loops: one row per workgroup, or with SHORT one row per 16 invocations. All invocations call the reductions,
// including those past the last row.
#if SHORT
#define TEAM 16u
#else
#define TEAM gl_WorkGroupSize.x
#endif
#include "include/thread_group.glsl"
#define ROW (grid_group() * (gl_WorkGroupSize.x / TEAM) + TEAM_NUMBER)
#if !LANES
shared float meeting[gl_WorkGroupSize.x + 16u];
#endif
PM_GATHER(gather_sum, float, meeting, pm_sum)
PM_GATHER(gather_largest, float, meeting, pm_max)

#define FOR_ROW(i, size) for (uint i = TEAM_MEMBER; i < (size); i += TEAM)

// One row a workgroup, or with SHORT one to each 16 of its invocations: sums and maxima over them, and loops over a row's elements. All
// invocations call the sums and the maxima, those whose row is past the last one too.
#if SHORT
#define TEAM 16u
#else
#define TEAM gl_WorkGroupSize.x
#endif
#include "include/team.glsl"
#define ROW (grid_group() * (gl_WorkGroupSize.x / TEAM) + TEAM_NUMBER)
#if !LANES
shared float meeting[gl_WorkGroupSize.x + 16u];
#endif
PM_GATHER(gather_sum, float, meeting, pm_sum)
PM_GATHER(gather_largest, float, meeting, pm_max)

#define FOR_ROW(i, size) for (uint i = TEAM_MEMBER; i < (size); i += TEAM)

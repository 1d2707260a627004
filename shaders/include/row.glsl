// One row a workgroup: sums and maxima over its invocations, and loops over a row's elements.
#define TEAM gl_WorkGroupSize.x
#include "include/team.glsl"
#if !LANES
shared float meeting[gl_WorkGroupSize.x + 16u];
#endif
PM_GATHER(gather_sum, float, meeting, pm_sum)
PM_GATHER(gather_largest, float, meeting, pm_max)

#define FOR_ROW(i, size) for (uint i = gl_LocalInvocationID.x; i < (size); i += gl_WorkGroupSize.x)

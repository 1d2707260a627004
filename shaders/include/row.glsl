// One row a workgroup: sums and maxima over its invocations, and loops over a row's elements.
// LANES: the workgroup is one subgroup of 8, without shared memory (CPU drivers); else it meets in shared memory.
#define pm_sum(s, t) ((s) + (t))
#if LANES
#define PM_GATHER(name, type, array, merge)                                                \
  type name(type v) {                                                                      \
    type result = subgroupShuffle(v, 0u);                                                  \
    for (uint i = 1u; i < 8u; ++i) result = merge(result, subgroupShuffle(v, i));          \
    return result;                                                                         \
  }
#else
#define TEAM gl_WorkGroupSize.x
#include "include/team.glsl"
shared float meeting[gl_WorkGroupSize.x + 16u];
#endif
PM_GATHER(gather_sum, float, meeting, pm_sum)
PM_GATHER(gather_largest, float, meeting, pm_max)

#define FOR_ROW(i, size) for (uint i = gl_LocalInvocationID.x; i < (size); i += gl_WorkGroupSize.x)

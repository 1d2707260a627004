// Row-wise reductions and loops: one row per workgroup, or with SHORT_ROWS one row per 16 invocations. All invocations call the reductions,
// even past the last row.
#if SHORT_ROWS
#define GROUP_THREADS 16u
#else
#define GROUP_THREADS gl_WorkGroupSize.x
#endif
#include "include/thread_group.glsl"
#define ROW_INDEX (grid_group() * (gl_WorkGroupSize.x / GROUP_THREADS) + THREAD_GROUP_INDEX)
#if !CPU_VARIANT
shared float reduce_buffer[gl_WorkGroupSize.x + 16u];
#endif
PM_DEFINE_GROUP_REDUCE(reduce_sum, float, reduce_buffer, pm_sum)
PM_DEFINE_GROUP_REDUCE(reduce_max, float, reduce_buffer, pm_max)

#define FOR_ROW_ELEMENTS(i, size) for (uint i = THREAD_IN_GROUP; i < (size); i += GROUP_THREADS)

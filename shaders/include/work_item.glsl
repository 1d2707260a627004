// Maps work items to workgroups of 64 invocations that synchronise with meet(). With ALONE each invocation has its own work item, without
// barriers, for many small items. WORK is the index of the item, MEMBER the index of the invocation among the MEMBERS that share it.
#include "include/grid.glsl"
layout(local_size_x = 64) in;
#if ALONE
#define MEMBERS 1u
#define MEMBER 0u
#define WORK grid_invocation()
void meet() {}
#else
#define MEMBERS 64u
#define MEMBER gl_LocalInvocationID.x
#define WORK grid_group()
#include "include/buffer_barrier.glsl"
void meet() { buffer_barrier(); }
#endif

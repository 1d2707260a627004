// A work item per workgroup of 64 invocations, which synchronise with meet(); or with ALONE a work item per invocation, without barriers,
// for many small items. WORK is the index of the item, MEMBER that of the invocation among the MEMBERS that share it.
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

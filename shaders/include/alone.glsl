// One piece of work to a workgroup of 64 invocations, which meet between its steps, or with ALONE to each invocation, which has nobody to
// wait for: what is right where a piece is small and there are many. WORK is the number of the piece, MEMBER that of the invocation among
// the MEMBERS that share it.
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

// One piece of work to a workgroup of 64 invocations, which meet between its steps, or with ALONE to each invocation, which has nobody to
// wait for: what is right where a piece is small and there are many. WORK is the number of the piece, MEMBER that of the invocation among
// the MEMBERS that share it.
layout(local_size_x = 64) in;
#define PM_GROUP (gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x)
#if ALONE
#define MEMBERS 1u
#define MEMBER 0u
#define WORK (PM_GROUP * gl_WorkGroupSize.x + gl_LocalInvocationID.x)
void meet() {}
#else
#define MEMBERS 64u
#define MEMBER gl_LocalInvocationID.x
#define WORK PM_GROUP
void meet() {
  memoryBarrierBuffer();
  barrier();
}
#endif

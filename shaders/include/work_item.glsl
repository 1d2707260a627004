// Maps work items to workgroups of 64 invocations, which synchronise with item_barrier(). With ONE_THREAD_PER_ITEM, for many small items,
// each invocation has its own work item and item_barrier() does nothing. ITEM_INDEX is the index of the item, THREAD_IN_ITEM the index of
// the invocation among the ITEM_THREADS that share it.
#include "include/grid.glsl"
layout(local_size_x = 64) in;
#if ONE_THREAD_PER_ITEM
#define ITEM_THREADS 1u
#define THREAD_IN_ITEM 0u
#define ITEM_INDEX grid_invocation()
void item_barrier() {}
#else
#define ITEM_THREADS 64u
#define THREAD_IN_ITEM gl_LocalInvocationID.x
#define ITEM_INDEX grid_group()
#include "include/buffer_barrier.glsl"
void item_barrier() { buffer_barrier(); }
#endif

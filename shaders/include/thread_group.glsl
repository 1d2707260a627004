// Reductions over groups of GROUP_THREADS adjacent invocations. PM_DEFINE_GROUP_REDUCE(name, type, array, merge) defines an all-reduce with
// `merge`; all invocations of the workgroup must call it.
#define pm_sum(s, t) ((s) + (t))
#if CPU_VARIANT
// CPU drivers: the workgroup is one subgroup of 8; shared memory is not used.
#define THREAD_GROUP_INDEX 0u
#define THREAD_IN_GROUP gl_LocalInvocationID.x
#define PM_DEFINE_GROUP_REDUCE(name, type, array, merge)                                               \
  type name(type v) {                                                                     \
    type result = subgroupShuffle(v, 0u);                                                 \
    for (uint i = 1u; i < 8u; ++i) result = merge(result, subgroupShuffle(v, i));         \
    return result;                                                                        \
  }
#elif SUBGROUP
// Reduces within subgroups of SUBGROUP (a power of two), then across subgroups in shared memory: `array` has workgroup size + 16 elements.
// Consecutive calls alternate between two disjoint regions of it, so that each call needs only one barrier. A shader may define
// PM_SHUFFLE_XOR for types that subgroupShuffleXor does not support.
#ifndef PM_SHUFFLE_XOR
#define PM_SHUFFLE_XOR subgroupShuffleXor
#endif
#define THREAD_GROUP_INDEX (gl_LocalInvocationID.x / GROUP_THREADS)
#define THREAD_IN_GROUP (gl_LocalInvocationID.x % GROUP_THREADS)
uint pm_reduce_offset = 0u;
#define PM_DEFINE_GROUP_REDUCE(name, type, array, merge)                                                                       \
  type name(type v) {                                                                                             \
    for (uint mask = 1u; mask < min(uint(GROUP_THREADS), uint(SUBGROUP)); mask <<= 1)                                      \
      v = merge(v, PM_SHUFFLE_XOR(v, mask));                                                                      \
    if (GROUP_THREADS > SUBGROUP) {                                                                                        \
      if (gl_LocalInvocationID.x % SUBGROUP == 0u) array[pm_reduce_offset + gl_LocalInvocationID.x / SUBGROUP] = v;        \
      barrier();                                                                                                  \
      const uint first = pm_reduce_offset + THREAD_GROUP_INDEX * (GROUP_THREADS / SUBGROUP);                                               \
      v = array[first];                                                                                           \
      for (uint i = 1u; i < GROUP_THREADS / SUBGROUP; ++i) v = merge(v, array[first + i]);                                 \
      pm_reduce_offset = gl_WorkGroupSize.x / SUBGROUP - pm_reduce_offset;                                                          \
    }                                                                                                             \
    return v;                                                                                                     \
  }
#else
// Reduces in shared memory: `array` has workgroup size + 16 elements. GROUP_THREADS is a power of two, at least 16.
#define THREAD_GROUP_INDEX (gl_LocalInvocationID.x / GROUP_THREADS)
#define THREAD_IN_GROUP (gl_LocalInvocationID.x % GROUP_THREADS)
// Two steps of 16 values need fewer barriers than a tree. A group of more than 16 is the whole workgroup.
#define PM_DEFINE_GROUP_REDUCE(name, type, array, merge)                                               \
  type name(type v) {                                                                     \
    if (GROUP_THREADS <= 16u) barrier(); /* array is reused; larger groups wait below */           \
    array[gl_LocalInvocationID.x] = v;                                                    \
    barrier();                                                                            \
    uint first = THREAD_GROUP_INDEX * GROUP_THREADS;                                                      \
    if (GROUP_THREADS > 16u) {                                                                     \
      if (THREAD_IN_GROUP < 16u) {                                                            \
        for (uint i = 16u; i < GROUP_THREADS; i += 16u) v = merge(v, array[THREAD_IN_GROUP + i]);      \
        array[GROUP_THREADS + THREAD_IN_GROUP] = v;                                                    \
      }                                                                                   \
      barrier();                                                                          \
      first = GROUP_THREADS;                                                                       \
    }                                                                                     \
    v = array[first];                                                                     \
    for (uint i = 1u; i < 16u; ++i) v = merge(v, array[first + i]);                       \
    return v;                                                                             \
  }
#endif

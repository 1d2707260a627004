// Reductions over groups of TEAM adjacent invocations. PM_GATHER(name, type, array, merge) defines an all-reduce with `merge`; all
// invocations of the workgroup must call it.
#define pm_sum(s, t) ((s) + (t))
#if LANES
// CPU drivers: the workgroup is one subgroup of 8; shared memory is not used.
#define TEAM_NUMBER 0u
#define TEAM_MEMBER gl_LocalInvocationID.x
#define PM_GATHER(name, type, array, merge)                                               \
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
#define TEAM_NUMBER (gl_LocalInvocationID.x / TEAM)
#define TEAM_MEMBER (gl_LocalInvocationID.x % TEAM)
uint pm_turn = 0u;
#define PM_GATHER(name, type, array, merge)                                                                       \
  type name(type v) {                                                                                             \
    for (uint mask = 1u; mask < min(uint(TEAM), uint(SUBGROUP)); mask <<= 1)                                      \
      v = merge(v, PM_SHUFFLE_XOR(v, mask));                                                                      \
    if (TEAM > SUBGROUP) {                                                                                        \
      if (gl_LocalInvocationID.x % SUBGROUP == 0u) array[pm_turn + gl_LocalInvocationID.x / SUBGROUP] = v;        \
      barrier();                                                                                                  \
      const uint first = pm_turn + TEAM_NUMBER * (TEAM / SUBGROUP);                                               \
      v = array[first];                                                                                           \
      for (uint i = 1u; i < TEAM / SUBGROUP; ++i) v = merge(v, array[first + i]);                                 \
      pm_turn = gl_WorkGroupSize.x / SUBGROUP - pm_turn;                                                          \
    }                                                                                                             \
    return v;                                                                                                     \
  }
#else
// Reduces in shared memory: `array` has workgroup size + 16 elements. TEAM is a power of two, at least 16.
#define TEAM_NUMBER (gl_LocalInvocationID.x / TEAM)
#define TEAM_MEMBER (gl_LocalInvocationID.x % TEAM)
// Two steps of 16 values need fewer barriers than a tree. Groups larger than 16 fill their workgroup.
#define PM_GATHER(name, type, array, merge)                                               \
  type name(type v) {                                                                     \
    if (TEAM <= 16u) barrier(); /* array is reused; larger groups wait below */           \
    array[gl_LocalInvocationID.x] = v;                                                    \
    barrier();                                                                            \
    uint first = TEAM_NUMBER * TEAM;                                                      \
    if (TEAM > 16u) {                                                                     \
      if (TEAM_MEMBER < 16u) {                                                            \
        for (uint i = 16u; i < TEAM; i += 16u) v = merge(v, array[TEAM_MEMBER + i]);      \
        array[TEAM + TEAM_MEMBER] = v;                                                    \
      }                                                                                   \
      barrier();                                                                          \
      first = TEAM;                                                                       \
    }                                                                                     \
    v = array[first];                                                                     \
    for (uint i = 1u; i < 16u; ++i) v = merge(v, array[first + i]);                       \
    return v;                                                                             \
  }
#endif

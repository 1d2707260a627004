// One row a workgroup: sums and maxima over its invocations, and loops over a row's elements.
// LANES: the workgroup is one subgroup of 8, without shared memory (CPU drivers); else it meets in shared memory.
#if LANES
float gather(float v, bool maximum) {
  float result = subgroupShuffle(v, 0u);
  for (uint i = 1u; i < 8u; ++i) {
    const float other = subgroupShuffle(v, i);
    result = maximum ? pm_max(result, other) : result + other;
  }
  return result;
}
#else
shared float meeting[gl_WorkGroupSize.x];

float gather(float v, bool maximum) {
  const uint id = gl_LocalInvocationID.x;
  barrier();
  meeting[id] = v;
  barrier();
  for (uint half_size = gl_WorkGroupSize.x / 2u; half_size > 0u; half_size /= 2u) {
    if (id < half_size) meeting[id] = maximum ? pm_max(meeting[id], meeting[id + half_size]) : meeting[id] + meeting[id + half_size];
    barrier();
  }
  return meeting[0];
}
#endif

#define FOR_ROW(i, size) for (uint i = gl_LocalInvocationID.x; i < (size); i += gl_WorkGroupSize.x)

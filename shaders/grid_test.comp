// Grid test: a dispatch of many workgroups in three dimensions, and a second one that reads what the first has written.
//
// STAGE 0: y[n] = 3 n + 1 for each invocation n of the grid. STAGE 1: y[n] = x[7919 n mod count] + n, after a barrier.
//
// For all devices. Run by cpp/dispatch/kernel/feature_trial.cpp, directly, indirectly and conditionally.
#version 450
layout(local_size_x = 4, local_size_y = 4, local_size_z = 4) in;
layout(constant_id = 0) const uint STAGE = 0u;
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) writeonly buffer Y { uint y[]; };
layout(push_constant) uniform parameter { uint count; } p;

void main() {
  const uvec3 size = gl_NumWorkGroups * gl_WorkGroupSize, at = gl_GlobalInvocationID;
  const uint n = (at.z * size.y + at.y) * size.x + at.x;
  if (n < p.count) y[n] = STAGE == 0u ? 3u * n + 1u : x[7919u * n % p.count] + n;
}

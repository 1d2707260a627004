// Workgroup index in the requested grid; kernels must not read gl_WorkGroupID themselves. Devices limit the workgroups per axis
// (maxComputeWorkGroupCount). A larger grid is numbered with x fastest and folded over all three axes; the host then sets the
// specialisation constant below. A folded grid may have surplus workgroups, which kernels must skip: by the bounds check of their index, or
// with GRID_AXES 3 by is_past_grid().
//
// GRID_AXES 1 (default): a 1D grid. 3: up to three axes; the kernel passes the sizes of the first two. 0: the grid is never folded, because
// the host splits the work until it fits.
#ifndef PUMICE_GRID
#define PUMICE_GRID
#ifndef GRID_AXES
#define GRID_AXES 1
#endif

#define linear_workgroup_index() (gl_WorkGroupID.x + gl_NumWorkGroups.x * (gl_WorkGroupID.y + gl_NumWorkGroups.y * gl_WorkGroupID.z))

#if GRID_AXES == 1
layout(constant_id = 90) const bool GRID_FOLDED_1 = false;

uint grid_group() { return GRID_FOLDED_1 ? linear_workgroup_index() : gl_WorkGroupID.x; }
#define grid_invocation() (grid_group() * gl_WorkGroupSize.x + gl_LocalInvocationID.x)
#elif GRID_AXES == 3
layout(constant_id = 90) const bool GRID_FOLDED_3 = false;

// Returns the workgroup index in a grid of `x` by `y` by any number of workgroups.
uvec3 grid_group(uint x, uint y) {
  if (!GRID_FOLDED_3) return gl_WorkGroupID;
  const uint number = linear_workgroup_index(), row = number / x, layer = row / y;
  return uvec3(number - row * x, row - layer * y, layer);
}
// Whether the workgroup is surplus, in a grid with size `z` on the third axis.
bool is_past_grid(uvec3 group, uint z) { return GRID_FOLDED_3 && group.z >= z; }
#else
#define grid_group() gl_WorkGroupID
#define grid_size() gl_NumWorkGroups
#endif
#endif

// The place of a workgroup in the grid that its kernel was asked for; no kernel but these functions reads gl_WorkGroupID. A device takes so
// many workgroups on an axis (maxComputeWorkGroupCount). The ordinary form of a kernel reads its place as it is. Where the grid has more on
// one axis, its workgroups are numbered, x fastest, and laid out on all three axes, and the host takes the form of the kernel whose constant
// is set here. A folded grid has a few workgroups more than were asked for, which find themselves past the bounds.
//
// GRID_AXES 1, where nothing is said: a kernel whose grid is a line. 3: one whose grid has up to three axes, the first two of known sizes.
// 0: one whose host code cuts its work until the grid of every part fits.
#ifndef PUMICE_GRID
#define PUMICE_GRID
#ifndef GRID_AXES
#define GRID_AXES 1
#endif

#define grid_number() (gl_WorkGroupID.x + gl_NumWorkGroups.x * (gl_WorkGroupID.y + gl_NumWorkGroups.y * gl_WorkGroupID.z))

#if GRID_AXES == 1
layout(constant_id = 90) const bool GRID_FOLDED_1 = false;

uint grid_group() { return GRID_FOLDED_1 ? grid_number() : gl_WorkGroupID.x; }
#define grid_invocation() (grid_group() * gl_WorkGroupSize.x + gl_LocalInvocationID.x)
#elif GRID_AXES == 3
layout(constant_id = 90) const bool GRID_FOLDED_3 = false;

// The place in a grid of `x` by `y` by any number of workgroups.
uvec3 grid_group(uint x, uint y) {
  if (!GRID_FOLDED_3) return gl_WorkGroupID;
  const uint number = grid_number(), row = number / x, layer = row / y;
  return uvec3(number - row * x, row - layer * y, layer);
}
// Whether a workgroup that found itself there has no work: the grid has `z` of them on the third axis.
bool is_past_grid(uvec3 group, uint z) { return GRID_FOLDED_3 && group.z >= z; }
#else
#define grid_group() gl_WorkGroupID
#define grid_size() gl_NumWorkGroups
#endif
#endif

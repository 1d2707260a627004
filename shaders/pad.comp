// Pad with a constant (MODE 0), by reflection (1) or with the edge (2), over up to five axes, for elements of 32 and 16 bits.
#version 450
#include "include/tensor.glsl"
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { sfp x[]; };
layout(binding = 1) buffer Y { sfp y[]; };
#define RANK 5
layout(push_constant) uniform parameter {
  uint elements;
  uint size[RANK];     // of the output
  int in_size[RANK];
  int begin[RANK];     // padding before; negative crops
  uint x_stride[RANK];
  uint y_stride[RANK];
  float value;
  uint x_offset, y_offset;
} p;
void main() {
  uint rest = (gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
  if (rest >= p.elements) return;
  uint from = p.x_offset, to = p.y_offset;
  bool inside = true;
  for (int axis = RANK - 1; axis >= 0; --axis) {
    const uint at = rest % p.size[axis];
    rest /= p.size[axis];
    to += at * p.y_stride[axis];
    int i = int(at) - p.begin[axis];
    const int last = p.in_size[axis] - 1;
#if MODE == 0
    inside = inside && i >= 0 && i <= last;
    i = clamp(i, 0, last);
#elif MODE == 1
    if (last > 0) {
      i = abs(i) % (2 * last);
      i = last - abs(last - i);
    } else {
      i = 0;
    }
#else
    i = clamp(i, 0, last);
#endif
    from += uint(i) * p.x_stride[axis];
  }
  const float v = pm_load(x, from);
  pm_store(y, to, inside ? v : p.value);
}

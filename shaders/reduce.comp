// Reduction of up to three (coalesced) axes for each of up to three kept ones, one result an invocation. The lowering gives START,
// STEP(s, v), MERGE(s, t) and FINISH(s, n) as macros over float sums.
#version 450
#include "include/math.glsl"
#include "include/tensor.glsl"
layout(local_size_x = 64) in;
#ifndef EPILOGUE
#define EPILOGUE(x) (x)
#endif
layout(binding = 0) readonly buffer X { sfp x[]; };
layout(binding = 1) buffer Y { sfp y[]; };
layout(push_constant) uniform parameter {
  uint results;
  uint kept[3], kept_stride[3];
  uint reduced[3], reduced_stride[3];
  uint x_offset, y_offset;
} p;
void main() {
  const uint id = (gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
  if (id >= p.results) return;
  uint rest = id, base = p.x_offset;
  for (int axis = 2; axis >= 0; --axis) {
    base += rest % p.kept[axis] * p.kept_stride[axis];
    rest /= p.kept[axis];
  }
  float sum = START;
  for (uint i = 0u; i < p.reduced[0]; ++i) {
    for (uint j = 0u; j < p.reduced[1]; ++j) {
      const uint row = base + i * p.reduced_stride[0] + j * p.reduced_stride[1];
      for (uint begin = 0u; begin < p.reduced[2]; begin += 4096u) {
        float part = START;  // sums of sums: the error grows with the logarithm of the length, not with the length
        for (uint k = begin; k < min(begin + 4096u, p.reduced[2]); ++k) {
          const float v = pm_load(x, row + k * p.reduced_stride[2]);
          part = STEP(part, v);
        }
        sum = MERGE(sum, part);
      }
    }
  }
  const float count = float(p.reduced[0]) * float(p.reduced[1]) * float(p.reduced[2]);
  pm_store(y, p.y_offset + id, EPILOGUE(FINISH(sum, count)));
}

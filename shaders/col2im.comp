// Col2Im over AXES spatial axes: each element of y is the sum of the elements of all blocks that overlap it.
//
// x: [planes, elements of a block, blocks]. y: [planes, size...], dense. One invocation computes one element (or the elements of a word),
// in a loop over the elements of a block.
//
// For all devices. Selected in cpp/operators/window/image_regions.cpp.
#version 450
layout(push_constant) uniform parameter {
  uint elements, block_elements, blocks;
  uint size[AXES], block[AXES], count[AXES], stride[AXES], pad[AXES], dilation[AXES];
  uint x_offset, y_offset;
} p;
#include "include/contiguous_float_output.glsl"
layout(binding = 1) readonly buffer X { sfp x[]; };

float element(uint id) {
  uint position[AXES], rest = id;
  for (int axis = AXES - 1; axis >= 0; --axis) {
    position[axis] = rest % p.size[axis] + p.pad[axis];
    rest /= p.size[axis];
  }
  float sum = 0.0;
  for (uint k = 0u; k < p.block_elements; ++k) {
    uint inside = k, factor = 1u, from = 0u;
    bool inside_block = true;
    for (int axis = AXES - 1; axis >= 0; --axis) {
      const uint offset = inside % p.block[axis] * p.dilation[axis], steps = (position[axis] - offset) / p.stride[axis];
      inside_block = inside_block && position[axis] >= offset && steps * p.stride[axis] == position[axis] - offset && steps < p.count[axis];
      inside /= p.block[axis];
      from += steps * factor;
      factor *= p.count[axis];
    }
    if (inside_block) sum += pm_load(x, p.x_offset + (rest * p.block_elements + k) * p.blocks + from);
  }
  return sum;
}

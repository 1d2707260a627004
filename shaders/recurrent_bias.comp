// Combines the biases of a recurrent layer: y = W bias + R bias, [direction][gate][unit]; then the R biases of the last gate,
// [direction][unit].
//
// SEPARATE_RESET_BIAS: the last gate's R bias is not added, because the reset gate multiplies it (GRU with linear_before_reset). x: as in
// ONNX, [direction][2 * gates * units]. One invocation computes one element.
// For all devices. Selected in cpp/operators/recurrent/recurrent_lowering.cpp.
#version 450
#include "include/grid.glsl"
#include "include/tensor.glsl"
layout(local_size_x = 64) in;
#if SOURCE_FLOAT
layout(binding = 0) readonly buffer X { float x[]; };
#define LOAD(i) x[i]
#else
layout(binding = 0) readonly buffer X { sfp x[]; };
#define LOAD(i) pm_load(x, i)
#endif
layout(binding = 1) writeonly buffer Y { float y[]; };
layout(push_constant) uniform parameter { uint directions, gates, units; uint x_offset; } p;
void main() {
  const uint i = grid_invocation();
  const uint direction_size = p.gates * p.units, sums = p.directions * direction_size;
  if (i < sums) {
    const uint direction = i / direction_size, at = p.x_offset + direction * 2u * direction_size + i % direction_size;
    const bool is_reset_bias = SEPARATE_RESET_BIAS != 0 && i % direction_size >= direction_size - p.units;
    y[i] = is_reset_bias ? LOAD(at) : LOAD(at) + LOAD(at + direction_size);
  } else if (i < sums + p.directions * p.units) {
    const uint rest = i - sums, direction = rest / p.units;
    y[i] = LOAD(p.x_offset + (direction * 2u + 2u) * direction_size - p.units + rest % p.units);
  }
}

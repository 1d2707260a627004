// DynamicQuantizeLinear parameters for uint8: low = min(x_min, 0), scale = (max(x_max, 0) - low) / 255, zero = round(-low / scale),
// clamped.
//
// x_min, x_max: float, one element each. One invocation. For all devices; selected in cpp/operators/quantize/quantize.cpp.
#version 450
#include "include/math.glsl"
#include "include/tensor.glsl"
layout(local_size_x = 1) in;
layout(binding = 0) readonly buffer XMin { float x_min[]; };
layout(binding = 1) readonly buffer XMax { float x_max[]; };
layout(binding = 2) buffer Scale { sfp scale[]; };
layout(binding = 3) writeonly buffer Zero { uint zero[]; };
layout(push_constant) uniform parameter { uint scale_offset, zero_offset; } p;
void main() {
  const float low = pm_min(x_min[0], 0.0), high = pm_max(x_max[0], 0.0);
  pm_store(scale, p.scale_offset, pm_divide(low == high ? 1.0 : high - low, 255.0));
  const float number = 0.0 - pm_divide(low, pm_load(scale, p.scale_offset));
  zero[p.zero_offset / 4u] = uint(pm_round_even(!(number > 0.0) ? 0.0 : number > 255.0 ? 255.0 : number));
}

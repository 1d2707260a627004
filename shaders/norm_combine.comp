// Combines the stretches' statistics of each (image, group of channels) into the factors that norm_apply takes for each channel.
#version 450
#include "include/grid.glsl"
#include "include/math.glsl"
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { vec2 x[]; };
layout(binding = 1) readonly buffer Scale { float scale[]; };
layout(binding = 2) readonly buffer Bias { float bias[]; };
layout(binding = 3) writeonly buffer Y { vec4 y[]; };
layout(push_constant) uniform parameter { 
  uint images, channels, groups;
  uint pixels, stretch, stretches;  // pixels of a group, and its stretches
  float epsilon;
} p;
void main() {
  const uint id = grid_invocation();
  if (id >= p.images * p.channels) return;
  const uint image = id / p.channels, channel = id - image * p.channels, group = channel / (p.channels / p.groups);
  const uint first = image * p.stretches * p.groups + group;
  const float origin = x[first].x;  // means are counted from it, so that they lose nothing by being added up
  float count = 0.0, mean = 0.0, squares = 0.0;
  for (uint i = 0u; i < p.stretches; ++i) {
    const vec2 part = x[first + i * p.groups];
    const float more = float(min(p.stretch, p.pixels - i * p.stretch)), total = count + more;
    precise float delta = (part.x - origin) - mean;
    mean += delta * pm_divide(more, total);
    squares += part.y + delta * delta * pm_divide(count * more, total);
    count = total;
  }
  precise float whole = origin + mean, rest = mean - (whole - origin);
  const float factor = scale[channel] * pm_divide(1.0, pm_sqrt(pm_divide(squares, float(p.pixels)) + p.epsilon));
  y[id] = vec4(whole, factor, bias[channel], rest);
}

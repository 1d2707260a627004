// GridSample over AXES axes: samples x at grid coordinates from -1 to 1, innermost axis first, accumulating in float.
//
// x: [images, channels, size...], grid: [images, points, AXES], y: [images, channels, points], all dense. TAPS per axis: 1 nearest, 2
// linear, 4 cubic. PADDING: 0 zeros, 1 border, 2 reflection. ALIGN (align_corners): -1 and 1 are the centers of the outermost elements,
// else their outer edges.
// One invocation computes one element (or the elements of a word), as a weighted sum of TAPS^AXES neighbours.
//
// For all devices. Selected in cpp/operators/resize/grid_sample.cpp.
#version 450
layout(push_constant) uniform parameter {
  uint elements, channels, points;  // points: number of grid points per image
  uint size_0, size_1, size_2;      // sizes of the AXES axes of x, outermost first
  uint x_offset, grid_offset, y_offset;
} p;
#include "include/contiguous_float_output.glsl"
layout(binding = 1) readonly buffer X { sfp x[]; };
layout(binding = 2) readonly buffer G { sfp grid[]; };
const float FAR = 8.0;  // distance beyond every tap

const float LOW = ALIGN != 0 ? 0.0 : -0.5;  // lower border of the axis

float border_span(uint size) { return float(size) - (ALIGN != 0 ? 1.0 : 0.0); }
bool is_inside(float i, uint size) { return i >= LOW && i <= LOW + border_span(size); }

// Reflects a coordinate at the borders; NaN gives an arbitrary coordinate inside.
float reflect_coordinate(float i, uint size) {
  if (is_inside(i, size)) return i;
  const float range = border_span(size);
  const float excess = i < LOW ? LOW - i : i - LOW - range;
  const float periods = range > 0.0 ? pm_floor(pm_divide(excess, range)) : 0.0, rest = range > 0.0 ? excess - periods * range : 0.0;
  return mod(periods, 2.0) == 0.0 == i < LOW ? LOW + rest : LOW + range - rest;
}

// Clamps a coordinate to integer range; NaN becomes `low`.
float clamp_or_low(float i, float low, float high) { return i > low ? i < high ? i : high : low; }

float pad_coordinate(float i, uint size) {
#if PADDING == 0 || (PADDING == 1 && TAPS == 4)  // cubic: neighbours are clamped individually
  return clamp_or_low(i, -FAR, float(size) + FAR);
#elif PADDING == 1
  return is_inside(i, size) ? i : clamp_or_low(i, 0.0, float(size) - 1.0);
#else
  return clamp_or_low(reflect_coordinate(i, size), -FAR, float(size) + FAR);
#endif
}

// Maps an index to an element according to the padding mode; -1 means zero.
int padded_index(int i, uint size) {
#if PADDING == 0
  return i >= 0 && i < int(size) ? i : -1;
#elif PADDING == 1
  return clamp(i, 0, int(size) - 1);
#else
  return clamp(int(reflect_coordinate(float(i), size)), 0, int(size) - 1);
#endif
}

#if TAPS == 1
// Exact sign of g * m + k, for g * m near -k.
float exact_sign(float g, float m, float k) {
  precise float low;
  precise float high = pm_exact_product(g, m, low), sum = high + k, total = sum + low;
  return sign(total);
}

// Rounds (g * m + m - b) / 2 to nearest even, from its floating-point approximation `i`. Rounding errors of g + 1 would otherwise create
// false ties.
float round_to_nearest_even(float g, float m, float b, float i) {
  const float whole = pm_round_even(i);
  if (!(abs(i) < 4194304.0)) return whole;
  const bool odd = mod(whole, 2.0) != 0.0;
  const float above = exact_sign(g, m, m - b - 2.0 * whole - 1.0), below = exact_sign(g, m, m - b - 2.0 * whole + 1.0);
  return above > 0.0 || (above == 0.0 && odd) ? whole + 1.0 : below < 0.0 || (below == 0.0 && odd) ? whole - 1.0 : whole;
}
#endif

float tap_weight(float t, uint tap) {
#if TAPS == 1
  return 1.0;
#elif TAPS == 2
  return tap == 0u ? 1.0 - t : t;
#else
  const float a = -0.75, d = abs(t + 1.0 - float(tap));  // cubic convolution by Keys
  return d <= 1.0 ? ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0 : ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a;
#endif
}

float element(uint id) {
  const uint plane = id / p.points, at = p.grid_offset + (plane / p.channels * p.points + id % p.points) * AXES;
  const uint sizes[3] = uint[](p.size_0, p.size_1, p.size_2);
  int first[AXES];
  float fraction[AXES];
  uint taps = 1u;
  for (uint axis = 0u; axis < AXES; ++axis) {
    const uint size = sizes[axis];
    const float g = pm_load(grid, at + AXES - 1u - axis), n = g + 1.0;
    float i = ALIGN != 0 ? n / 2.0 * (float(size) - 1.0) : (n * float(size) - 1.0) / 2.0;
#if TAPS == 1
    i = round_to_nearest_even(g, ALIGN != 0 ? float(size) - 1.0 : float(size), ALIGN != 0 ? 0.0 : 1.0, i);
#endif
    i = pad_coordinate(i, size);
    const float whole = TAPS == 1 ? pm_trunc(i) : pm_floor(i);
    first[axis] = int(whole) - (TAPS == 4 ? 1 : 0);
    fraction[axis] = i - whole;
    taps *= TAPS;
  }
  float sum = 0.0;
  for (uint k = 0u; k < taps; ++k) {
    uint source = plane;
    float product = 1.0;
    bool found = true;
    for (uint axis = 0u, rest = k; axis < AXES; ++axis, rest /= TAPS) {
      const int i = padded_index(first[axis] + int(rest % TAPS), sizes[axis]);
      found = found && i >= 0;
      source = source * sizes[axis] + uint(max(i, 0));
      product *= tap_weight(fraction[axis], rest % TAPS);
    }
    if (found) sum += product * pm_load(x, p.x_offset + source);
  }
  return sum;
}

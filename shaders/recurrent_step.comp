// One time step of a recurrent layer for all sequences and directions. An invocation sums one part of SPLIT of the products of the
// hidden state with a unit's gates, for ROWS sequences; the parts meet in shared memory and share the sequences out among them. The
// input's products, with the biases, are made before the first step.
//
// CELL: kRnn, kLstm (gates i, o, f, c), kGruLinear (z, r, h), or the two dispatches of a GRU whose reset gate comes before the product:
// kGruGates makes z and r * h, kGruHidden the new state. GATES from FIRST_GATE on of ALL_GATES are made. F, G and H are the activations,
// of x in direction d. The sequence of a step past its length keeps its state, and its output there is zero.
//
// State, in float32, rows of `width` (a multiple of 4, zero past the units): hidden states at h_from and h_to, cells (or r * h, and then
// z) at `cells`. Recurrent weights: [direction][gate][unit / 16][depth / 4][16][4].
#version 450
#extension GL_EXT_control_flow_attributes : require
#include "include/math.glsl"
#include "include/tensor.glsl"

layout(local_size_x = 16, local_size_y_id = 0) in;
layout(constant_id = 0) const uint SPLIT = 1u;

layout(binding = 0) readonly buffer X { sfp x[]; };  // [row of a sequence's step][direction][gate][unit]
layout(binding = 1) readonly buffer R { sfpvec4 r[]; };
layout(binding = 2) readonly buffer Fours { vec4 fours[]; };  // of the state
layout(binding = 3) buffer State { float state[]; };
#if HAS_Y
layout(binding = 4) buffer Y { sfp y[]; };
#endif
#if HAS_LENGTHS
layout(binding = 5) readonly buffer Lengths { int lengths[]; };
#endif
#if HAS_PEEPHOLES
layout(binding = 6) readonly buffer Peepholes { float peepholes[]; };  // [direction][i, o, f][unit]
#endif
#if HAS_HIDDEN_BIAS
layout(binding = 7) readonly buffer Bias { float bias[]; };  // of the recurrent product for gate h, from hidden_bias on: [direction][unit]
#endif
layout(push_constant) uniform parameter {
  uint step, steps;
  uint batch, units, width, directions;
  uint h_from, h_to, cells;
  uint x_stride_t, x_stride_b;  // rows of x
  uint y_stride_t, y_stride_d, y_stride_b;
  uint hidden_bias;
  uint reversed;  // the first direction is; a second one always is
  float clip;     // of what activations take
  uint y_offset, lengths_offset;
} p;

float clipped(float v) {
#if CLIPS
  return v > p.clip ? p.clip : v < -p.clip ? -p.clip : v;
#else
  return v;
#endif
}
float activate_f(float x, uint d) { x = clipped(x); return F; }
float activate_g(float x, uint d) { x = clipped(x); return G; }
float activate_h(float x, uint d) { x = clipped(x); return H; }

#if MEETS
shared float parts[SPLIT * ROWS * GATES * 16u];  // [part][row][gate][unit]
#endif

void main() {
  const uint unit = gl_WorkGroupID.x * 16u + gl_LocalInvocationID.x, part = gl_LocalInvocationID.y;
  const uint first_row = gl_WorkGroupID.y * uint(ROWS), d = gl_WorkGroupID.z;
  const uint quads = p.width / 4u, gate_stride = gl_NumWorkGroups.x * quads * 16u;
  float sums[ROWS * GATES];
  [[unroll]] for (uint i = 0u; i < uint(ROWS * GATES); ++i) sums[i] = 0.0;
#if CELL == kGruHidden
  const uint factor = p.cells;
#else
  const uint factor = p.h_from;
#endif
  uint rows[ROWS];  // fours of the factor
  [[unroll]] for (uint row = 0u; row < uint(ROWS); ++row)
    rows[row] = factor / 4u + (d * p.batch + min(first_row + row, p.batch - 1u)) * quads;
  uint at = (d * uint(ALL_GATES) + uint(FIRST_GATE)) * gate_stride + (gl_WorkGroupID.x * quads + part) * 16u + gl_LocalInvocationID.x;
  for (uint k = part; k < quads; k += SPLIT) {
    vec4 w[GATES];
    [[unroll]] for (uint gate = 0u; gate < uint(GATES); ++gate) w[gate] = pm_load_vec4(r, at + gate * gate_stride);
    [[unroll]] for (uint row = 0u; row < uint(ROWS); ++row) {
      const vec4 h = fours[rows[row] + k];
      [[unroll]] for (uint gate = 0u; gate < uint(GATES); ++gate) sums[row * GATES + gate] += dot(w[gate], h);
    }
    at += SPLIT * 16u;
  }
#if MEETS
  [[unroll]] for (uint i = 0u; i < uint(ROWS * GATES); ++i) parts[(part * ROWS * GATES + i) * 16u + gl_LocalInvocationID.x] = sums[i];
  barrier();
#endif
  if (unit >= p.width) return;
  [[unroll]] for (uint row = 0u; row < uint(ROWS); ++row) {
#if MEETS
    if (row % SPLIT != part) continue;
#endif
    const uint b = first_row + row;
    if (b >= p.batch) continue;
    const uint own = (d * p.batch + b) * p.width + unit;  // of the state
    if (unit >= p.units) {  // what the next step's fours read beside the units
#if CELL == kGruGates
      state[p.cells + own] = 0.0;
#else
      state[p.h_to + own] = 0.0;
#endif
      continue;
    }
    uint length = p.steps;
#if HAS_LENGTHS
    length = uint(clamp(lengths[p.lengths_offset + b], 0, int(p.steps)));
#endif
    const bool running = p.step < length;
    const uint t = running && (d == 1u || p.reversed != 0u) ? length - 1u - p.step : p.step;
    float v[GATES];  // of the gates before their activations
    const uint from = ((t * p.x_stride_t + b * p.x_stride_b) * p.directions + d) * ALL_GATES * p.units + FIRST_GATE * p.units + unit;
    [[unroll]] for (uint gate = 0u; gate < uint(GATES); ++gate) {
      v[gate] = pm_load(x, from + gate * p.units);
#if MEETS
      float sum = 0.0;
      for (uint other = 0u; other < SPLIT; ++other) sum += parts[((other * ROWS + row) * GATES + gate) * 16u + gl_LocalInvocationID.x];
#else
      const float sum = sums[row * GATES + gate];
#endif
#if CELL == kGruLinear
      if (gate == 2u) {
#if HAS_HIDDEN_BIAS
        sums[row * GATES] = sum + bias[p.hidden_bias + d * p.units + unit];
#else
        sums[row * GATES] = sum;
#endif
        continue;
      }
#endif
      v[gate] += sum;
    }
    const float old = state[p.h_from + own];
    float made = old;
#if CELL == kRnn
    made = activate_f(v[0], d);
#elif CELL == kLstm
    const float cell = state[p.cells + own];
    vec3 peeps = vec3(0.0);
#if HAS_PEEPHOLES
    [[unroll]] for (uint i = 0u; i < 3u; ++i) peeps[i] = peepholes[(d * 3u + i) * p.units + unit];
#endif
    const float in_gate = activate_f(v[0] + peeps.x * cell, d);
#if COUPLED
    const float forget = 1.0 - in_gate;
#else
    const float forget = activate_f(v[2] + peeps.z * cell, d);
#endif
    const float next = forget * cell + in_gate * activate_g(v[3], d);
    made = activate_f(v[1] + peeps.y * next, d) * activate_h(next, d);
    if (running) state[p.cells + own] = next;
#elif CELL == kGruLinear
    const float z = activate_f(v[0], d), reset = activate_f(v[1], d);
    made = (1.0 - z) * activate_g(v[2] + reset * sums[row * GATES], d) + z * old;
#elif CELL == kGruGates
    state[p.cells + p.directions * p.batch * p.width + own] = activate_f(v[0], d);
    state[p.cells + own] = activate_f(v[1], d) * old;
#else
    const float z = state[p.cells + p.directions * p.batch * p.width + own];
    made = (1.0 - z) * activate_g(v[0], d) + z * old;
#endif
#if CELL != kGruGates
    state[p.h_to + own] = running ? made : old;
#if HAS_Y
    pm_store(y, p.y_offset + t * p.y_stride_t + d * p.y_stride_d + b * p.y_stride_b + unit, running ? made : 0.0);
#endif
#endif
  }
}

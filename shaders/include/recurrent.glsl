// Shared by the kernels of recurrent layers.
//
// CELL: kRnn, kLstm (gates i, o, f, c), kGru (z, r, h) with the reset gate before the recurrent matmul, or kGruLinear with it after. F, G
// and H are macros that apply the activation functions of direction d to x. After its last step, a sequence keeps its state and outputs
// zero.
//
// State, in fp32, rows of `width` (units rounded up to a multiple of 4, zero-padded): hidden states at h_from and h_to, cells at `cells`.
// Recurrent weights: [direction][gate][unit / 16][K / 4][16][4].
#define kRnn 0
#define kLstm 1
#define kGru 2
#define kGruLinear 3
#if CELL == kRnn
#define GATES 1
#elif CELL == kLstm
#define GATES 4
#else
#define GATES 3
#endif

layout(binding = 0) readonly buffer X { sfp x[]; };  // [row of step and sequence][direction][gate][unit]
layout(binding = 1) readonly buffer R { sfpvec4 r[]; };
layout(binding = 3) buffer State { float state[]; };
#if HAS_Y
layout(binding = 4) buffer Y { Y_TYPE y[]; };
#endif
#if HAS_BACK
layout(binding = 11) buffer Back { BACK_TYPE back[]; };  // output of the second direction (SEPARATE_OUTPUTS)
#endif
#if HAS_LENGTHS
layout(binding = 5) readonly buffer Lengths { int lengths[]; };
#endif
#if HAS_PEEPHOLES
layout(binding = 6) readonly buffer Peepholes { float peepholes[]; };  // [direction][i, o, f][unit]
#endif
#if HAS_HIDDEN_BIAS
layout(binding = 7) readonly buffer Bias { float bias[]; };  // recurrent bias of gate h, from hidden_bias on: [direction][unit]
#endif
layout(push_constant) uniform parameter {
  uint step, steps;
#if MULTI_STEP
  uint count;  // number of steps in this dispatch
#endif
  uint batch, units, width, directions;
  uint h_from, h_to, cells;
  uint x_stride_t, x_stride_b;  // strides in rows of x
  uint y_stride_t, y_stride_d, y_stride_b;
  uint hidden_bias;
  uint reversed;  // whether the first direction is reversed; the second direction always is
  float clip;     // clip limit of the activation inputs
#if GATE_BINDINGS
  uint direction, first_block, blocks;  // direction that this dispatch computes, and its blocks of 16 units
  uint r_offset, r1_offset, r2_offset, r3_offset;  // offset of each gate's weights in its binding, in vec4s
#endif
  uint y_offset, back_offset, lengths_offset;
} p;

float clip_input(float v) {
#if CLIPS
  return v > p.clip ? p.clip : v < -p.clip ? -p.clip : v;
#else
  return v;
#endif
}
float activate_f(float x, uint d) {
  x = clip_input(x);
  precise float y = F;
  return y;
}
float activate_g(float x, uint d) {
  x = clip_input(x);
  precise float y = G;
  return y;
}
float activate_h(float x, uint d) {
  x = clip_input(x);
  precise float y = H;
  return y;
}

uint sequence_length(uint b) {
#if HAS_LENGTHS
  return uint(clamp(lengths[p.lengths_offset + b], 0, int(p.steps)));
#else
  return p.steps;
#endif
}

// Time index that a sequence reads and writes in a step.
uint time_index(uint step, uint length, uint d) {
  return step < length && (d == 1u || p.reversed != 0u) ? length - 1u - step : step;
}

// Index of the input projection of the first gate, including biases; the other gates follow at stride `units`.
uint input_index(uint t, uint b, uint d, uint unit) {
  return ((t * p.x_stride_t + b * p.x_stride_b) * p.directions + d) * uint(GATES) * p.units + unit;
}

// STORE_Y and STORE_BACK convert to the element type of their tensor.
void store_output(uint t, uint b, uint d, uint unit, float v) {
  const uint at = t * p.y_stride_t + b * p.y_stride_b + unit;
#if SEPARATE_OUTPUTS
  if (d == 0u) {
#if HAS_Y
    STORE_Y(p.y_offset + at, v);
#endif
  } else {
#if HAS_BACK
    STORE_BACK(p.back_offset + at, v);
#endif
  }
#elif HAS_Y
  STORE_Y(p.y_offset + at + d * p.y_stride_d, v);
#endif
}

#if CELL == kLstm
// Computes the new hidden state from the gates before activation; updates `cell`.
float update_cell(vec4 v, inout float cell, uint d, uint unit) {
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
  cell = forget * cell + in_gate * activate_g(v[3], d);
  return activate_f(v[1] + peeps.y * cell, d) * activate_h(cell, d);
}
#endif

#if CELL == kGruLinear
// `product`: the recurrent term of gate h, which v.z does not include.
float update_cell(vec3 v, float product, float old_h, uint d, uint unit) {
#if HAS_HIDDEN_BIAS
  product += bias[p.hidden_bias + d * p.units + unit];
#endif
  const float z = activate_f(v.x, d), reset = activate_f(v.y, d);
  return (1.0 - z) * activate_g(v.z + reset * product, d) + z * old_h;
}
#endif

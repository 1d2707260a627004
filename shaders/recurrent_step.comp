// One time step of RNN, LSTM and GRU for all sequences and directions. See include/recurrent.glsl.
//
// Grid (x, y, z) = (16 units, ROWS sequences, direction). SPLIT invocations split the dot products of a unit's gates with the hidden state,
// reduce in shared memory, and divide the sequences among themselves. CPU_VARIANT: for CPU drivers, without SPLIT.
//   for each 4 of the hidden state of this split: load R of all gates; acc[row][gate] += dot(R, h)
//   reduce over SPLIT; activations; store state and y
// A GRU with the reset gate before the matmul needs two dispatches: PHASE 0 stores r * h in place of the cells, and z after it; PHASE 1 the
// new state. GATE_BINDINGS: R exceeds the maximum binding size, so a dispatch computes one direction and some blocks of units, and each
// gate's weights are a separate binding.
//
// For all devices. Selected in cpp/operators/recurrent/recurrent_lowering.cpp.
#version 450
#if CPU_VARIANT
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
#extension GL_EXT_control_flow_attributes : require
#define GRID_AXES 3
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"

layout(local_size_x = 16, local_size_y_id = 0) in;
layout(constant_id = 0) const uint SPLIT = 1u;
#include "include/recurrent.glsl"
layout(binding = 2) readonly buffer StateVec4 { vec4 state_vec4[]; };  // the state as vec4s

// Gates computed in this dispatch.
#if CELL != kGru
#define FIRST_GATE 0
#define NUM_GATES GATES
#elif PHASE == 0
#define FIRST_GATE 0
#define NUM_GATES 2
#else
#define FIRST_GATE 2
#define NUM_GATES 1
#endif

#if GATE_BINDINGS && NUM_GATES > 1
layout(binding = 8) readonly buffer R1 { sfpvec4 r1[]; };
#endif
#if GATE_BINDINGS && NUM_GATES > 2
layout(binding = 9) readonly buffer R2 { sfpvec4 r2[]; };
#endif
#if GATE_BINDINGS && NUM_GATES > 3
layout(binding = 10) readonly buffer R3 { sfpvec4 r3[]; };
#endif

#if REDUCES_SPLIT
shared float partials[SPLIT * ROWS * NUM_GATES * 16u];  // [split][row][gate][unit]
#endif

// Loads four K steps of R for each gate of a unit, starting at `at`.
void load_gates(uint at, uint gate_stride, out vec4 w[NUM_GATES]) {
#if GATE_BINDINGS
  w[0] = pm_load_vec4(r, p.r_offset + at);
#if NUM_GATES > 1
  w[1] = pm_load_vec4(r1, p.r1_offset + at);
#endif
#if NUM_GATES > 2
  w[2] = pm_load_vec4(r2, p.r2_offset + at);
#endif
#if NUM_GATES > 3
  w[3] = pm_load_vec4(r3, p.r3_offset + at);
#endif
#else
  [[unroll]] for (uint gate = 0u; gate < uint(NUM_GATES); ++gate) w[gate] = pm_load_vec4(r, at + gate * gate_stride);
#endif
}

void main() {
#if GATE_BINDINGS
  const uint blocks = p.blocks, first_block = p.first_block;
#else
  const uint blocks = (p.units + 15u) / 16u, first_block = 0u;
#endif
  const uvec3 group = grid_group(blocks, (p.batch + uint(ROWS) - 1u) / uint(ROWS));
#if GATE_BINDINGS
  if (is_past_grid(group, 1u)) return;
  const uint d = p.direction, first_gate = 0u;
#else
  if (is_past_grid(group, p.directions)) return;
  const uint d = group.z, first_gate = d * uint(GATES) + uint(FIRST_GATE);
#endif
  const uint unit = (first_block + group.x) * 16u + gl_LocalInvocationID.x, split = gl_LocalInvocationID.y;
  const uint first_row = group.y * uint(ROWS);
  const uint vec4_per_row = p.width / 4u, gate_stride = blocks * vec4_per_row * 16u;
  float sums[ROWS * NUM_GATES];
  [[unroll]] for (uint i = 0u; i < uint(ROWS * NUM_GATES); ++i) sums[i] = 0.0;
  const uint factor = FIRST_GATE == 2 ? p.cells : p.h_from;
  uint rows[ROWS];  // offsets in vec4s
  [[unroll]] for (uint row = 0u; row < uint(ROWS); ++row)
    rows[row] = factor / 4u + (d * p.batch + min(first_row + row, p.batch - 1u)) * vec4_per_row;
  uint at = first_gate * gate_stride + (group.x * vec4_per_row + split) * 16u + gl_LocalInvocationID.x;
  uint k = split;
#if CPU_VARIANT
  // A subgroup of 8 loads eight vec4s together, and broadcasts them by subgroupShuffle with constant lanes.
  for (; k + 8u <= vec4_per_row; k += 8u) {
    vec4 h_regs[ROWS];
    [[unroll]] for (uint row = 0u; row < uint(ROWS); ++row) h_regs[row] = state_vec4[rows[row] + k + gl_SubgroupInvocationID];
    [[unroll]] for (uint lane = 0u; lane < 8u; ++lane) {
      vec4 w[NUM_GATES];
      load_gates(at, gate_stride, w);
      [[unroll]] for (uint row = 0u; row < uint(ROWS); ++row) {
        const vec4 h = subgroupShuffle(h_regs[row], lane);
        [[unroll]] for (uint gate = 0u; gate < uint(NUM_GATES); ++gate) sums[row * NUM_GATES + gate] += dot(w[gate], h);
      }
      at += 16u;
    }
  }
#endif
  for (; k < vec4_per_row; k += SPLIT) {
    vec4 w[NUM_GATES];
    load_gates(at, gate_stride, w);
    [[unroll]] for (uint row = 0u; row < uint(ROWS); ++row) {
      const vec4 h = state_vec4[rows[row] + k];
      [[unroll]] for (uint gate = 0u; gate < uint(NUM_GATES); ++gate) sums[row * NUM_GATES + gate] += dot(w[gate], h);
    }
    at += SPLIT * 16u;
  }
#if REDUCES_SPLIT
  [[unroll]] for (uint i = 0u; i < uint(ROWS * NUM_GATES); ++i) partials[(split * ROWS * NUM_GATES + i) * 16u + gl_LocalInvocationID.x] = sums[i];
  barrier();
#endif
  if (unit >= p.width) return;
  [[unroll]] for (uint row = 0u; row < uint(ROWS); ++row) {
#if REDUCES_SPLIT
    if (row % SPLIT != split) continue;
#endif
    const uint b = first_row + row;
    if (b >= p.batch) continue;
    const uint state_index = (d * p.batch + b) * p.width + unit;  // index of this unit in the state
#if CELL == kGru && PHASE == 0
    const uint target = p.cells + state_index;
#else
    const uint target = p.h_to + state_index;
#endif
    if (unit >= p.units) {  // zero padding for the vec4s of the next step
      state[target] = 0.0;
      continue;
    }
    const uint length = sequence_length(b), t = time_index(p.step, length, d), from = input_index(t, b, d, unit);
    float v[NUM_GATES], product[NUM_GATES];
    [[unroll]] for (uint gate = 0u; gate < uint(NUM_GATES); ++gate) {
      v[gate] = pm_load(x, from + (uint(FIRST_GATE) + gate) * p.units);
#if REDUCES_SPLIT
      product[gate] = 0.0;
      for (uint other = 0u; other < SPLIT; ++other)
        product[gate] += partials[((other * ROWS + row) * NUM_GATES + gate) * 16u + gl_LocalInvocationID.x];
#else
      product[gate] = sums[row * NUM_GATES + gate];
#endif
    }
    const float old_h = state[p.h_from + state_index];
#if CELL == kGru && PHASE == 0
    state[target] = activate_f(v[1] + product[1], d) * old_h;
    state[target + p.directions * p.batch * p.width] = activate_f(v[0] + product[0], d);
#else
    const bool is_running = p.step < length;
#if CELL == kRnn
    const float new_h = activate_f(v[0] + product[0], d);
#elif CELL == kLstm
    float cell = state[p.cells + state_index];
    const float new_h = update_cell(vec4(v[0] + product[0], v[1] + product[1], v[2] + product[2], v[3] + product[3]), cell, d, unit);
    if (is_running) state[p.cells + state_index] = cell;
#elif CELL == kGruLinear
    const float new_h = update_cell(vec3(v[0] + product[0], v[1] + product[1], v[2]), product[2], old_h, d, unit);
#else
    const float z = state[p.cells + p.directions * p.batch * p.width + state_index];
    const float new_h = (1.0 - z) * activate_g(v[0] + product[0], d) + z * old_h;
#endif
    state[target] = is_running ? new_h : old_h;
    store_output(t, b, d, unit, is_running ? new_h : 0.0);
#endif
  }
}

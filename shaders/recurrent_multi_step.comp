// RNN, LSTM and GRU with few units: many time steps in one dispatch, with the states in shared memory. See include/recurrent.glsl.
//
// Workgroup = all units of ROWS sequences in one direction; one invocation per unit.
//   load the states
//   for each time step: gates = R h (vec4 dots from shared memory) + x; activations; new state to registers and shared memory; store y;
//   barrier
//   store the states
//
// For all devices. Selected in cpp/operators/recurrent/recurrent_lowering.cpp (choose_steps_per_dispatch) for up to 64 units, or 128 on CPU
// drivers.
#version 450
#extension GL_EXT_control_flow_attributes : require
#define GRID_AXES 3
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint INVOCATIONS = 16u;  // units, rounded up to 16
layout(constant_id = 1) const uint VEC4_PER_ROW = 4u;  // vec4s per state row
#define MULTI_STEP 1
#include "include/recurrent.glsl"

shared vec4 hidden[2u * ROWS * VEC4_PER_ROW];  // double-buffered: states read, and states written (kGru: r * h)

float sums[ROWS * GATES];

// Multiplies the rows of `hidden` by R for `count` gates.
void multiply(uint source, uint d, const uint first, const uint count) {
  const uint gate_stride = INVOCATIONS * VEC4_PER_ROW, unit = gl_LocalInvocationID.x;
  uint at = (d * uint(GATES) + first) * gate_stride + unit / 16u * VEC4_PER_ROW * 16u + unit % 16u;
  [[unroll]] for (uint row = 0u; row < uint(ROWS); ++row)
    [[unroll]] for (uint gate = first; gate < first + count; ++gate) sums[row * GATES + gate] = 0.0;
  for (uint k = 0u; k < VEC4_PER_ROW; ++k) {
    vec4 h[ROWS];
    [[unroll]] for (uint row = 0u; row < uint(ROWS); ++row) h[row] = hidden[source + row * VEC4_PER_ROW + k];
    [[unroll]] for (uint gate = 0u; gate < count; ++gate) {
      const vec4 w = pm_load_vec4(r, at + gate * gate_stride);
      [[unroll]] for (uint row = 0u; row < uint(ROWS); ++row) sums[row * GATES + first + gate] += dot(w, h[row]);
    }
    at += 16u;
  }
}

void store_hidden(uint target, uint row, float v) {
  const uint unit = gl_LocalInvocationID.x;
  if (unit < p.width) hidden[target + row * VEC4_PER_ROW + unit / 4u][unit & 3u] = v;
}

void main() {
  const uvec3 group = grid_group(1u, (p.batch + uint(ROWS) - 1u) / uint(ROWS));
  if (is_past_grid(group, p.directions)) return;
  const uint unit = gl_LocalInvocationID.x, first_row = group.y * uint(ROWS), d = group.z;
  const uint second_buffer = ROWS * VEC4_PER_ROW;
  const bool is_unit = unit < p.units;
  float old_h[ROWS], cells[ROWS];
  uint state_index[ROWS], length[ROWS];
  [[unroll]] for (uint row = 0u; row < uint(ROWS); ++row) {
    const uint b = min(first_row + row, p.batch - 1u);
    state_index[row] = (d * p.batch + b) * p.width + unit;
    length[row] = sequence_length(b);
    old_h[row] = is_unit ? state[p.h_from + state_index[row]] : 0.0;
    cells[row] = CELL == kLstm && is_unit ? state[p.cells + state_index[row]] : 0.0;
    store_hidden(0u, row, old_h[row]);
    store_hidden(second_buffer, row, 0.0);
  }
  barrier();
  uint current = 0u;
  for (uint step = p.step; step < p.step + p.count; ++step) {
#if CELL == kGru
    multiply(0u, d, 0u, 2u);
    float z[ROWS];
    [[unroll]] for (uint row = 0u; row < uint(ROWS); ++row) {
      const uint b = min(first_row + row, p.batch - 1u);
      const uint from = input_index(time_index(step, length[row], d), b, d, min(unit, p.units - 1u));
      z[row] = activate_f(pm_load(x, from) + sums[row * GATES], d);
      if (is_unit) store_hidden(second_buffer, row, activate_f(pm_load(x, from + p.units) + sums[row * GATES + 1u], d) * old_h[row]);
    }
    barrier();
    multiply(second_buffer, d, 2u, 1u);
#else
    multiply(current, d, 0u, uint(GATES));
    current = second_buffer - current;
#endif
    [[unroll]] for (uint row = 0u; row < uint(ROWS); ++row) {
      const uint b = min(first_row + row, p.batch - 1u), t = time_index(step, length[row], d);
      const uint from = input_index(t, b, d, min(unit, p.units - 1u));
      const bool is_running = step < length[row];
      float v[GATES];
      [[unroll]] for (uint gate = 0u; gate < uint(GATES); ++gate) v[gate] = pm_load(x, from + gate * p.units);
#if CELL == kRnn
      const float new_h = activate_f(v[0] + sums[row], d);
#elif CELL == kLstm
      float cell = cells[row];
      const uint at = row * GATES;
      const vec4 gates = vec4(v[0] + sums[at], v[1] + sums[at + 1u], v[2] + sums[at + 2u], v[3] + sums[at + 3u]);
      const float new_h = update_cell(gates, cell, d, min(unit, p.units - 1u));
      if (is_running) cells[row] = cell;
#elif CELL == kGruLinear
      const uint at = row * GATES;
      const vec3 gates = vec3(v[0] + sums[at], v[1] + sums[at + 1u], v[2]);
      const float new_h = update_cell(gates, sums[at + 2u], old_h[row], d, min(unit, p.units - 1u));
#else
      const float new_h = (1.0 - z[row]) * activate_g(v[2] + sums[row * GATES + 2u], d) + z[row] * old_h[row];
#endif
      if (is_running) old_h[row] = new_h;
      if (is_unit) {
        store_hidden(current, row, old_h[row]);
        if (first_row + row < p.batch) store_output(t, b, d, unit, is_running ? new_h : 0.0);
      }
    }
    barrier();
  }
  if (!is_unit) return;
  [[unroll]] for (uint row = 0u; row < uint(ROWS); ++row) {
    if (first_row + row >= p.batch) break;
    state[p.h_to + state_index[row]] = old_h[row];
#if CELL == kLstm
    state[p.cells + state_index[row]] = cells[row];
#endif
  }
}

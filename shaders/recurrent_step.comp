// One time step of RNN, LSTM and GRU for all sequences and directions. See include/recurrent.glsl.
//
// Grid (x, y, z) = (16 units, ROWS sequences, direction). SPLIT invocations split the dot products of a unit's gates with the hidden state,
// reduce in shared memory, and divide the sequences among themselves. LANES: the CPU variant, without SPLIT.
//   for each 4 of the hidden state of this split: load R of all gates; acc[row][gate] += dot(R, h)
//   reduce over SPLIT; activations; store state and y
// A GRU with the reset gate before the matmul needs two dispatches: PART 0 stores r * h in place of the cells, and z after it; PART 1 the
// new state. CUT: R is larger than the device can bind, so a dispatch has one direction and some blocks of units, and each gate's weights
// are a binding.
//
// For all devices. Selected in cpp/operators/recurrent/recurrent_lowering.cpp.
#version 450
#if LANES
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
layout(binding = 2) readonly buffer Fours { vec4 fours[]; };  // the state as vec4s

// Gates computed in this dispatch.
#if CELL != kGru
#define FIRST 0
#define COUNT GATES
#elif PART == 0
#define FIRST 0
#define COUNT 2
#else
#define FIRST 2
#define COUNT 1
#endif

#if CUT && COUNT > 1
layout(binding = 8) readonly buffer R1 { sfpvec4 r1[]; };
#endif
#if CUT && COUNT > 2
layout(binding = 9) readonly buffer R2 { sfpvec4 r2[]; };
#endif
#if CUT && COUNT > 3
layout(binding = 10) readonly buffer R3 { sfpvec4 r3[]; };
#endif

#if MEETS
shared float parts[SPLIT * ROWS * COUNT * 16u];  // [split][row][gate][unit]
#endif

// Loads four K steps of R for each gate of a unit, from `at` on.
void load_gates(uint at, uint gate_stride, out vec4 w[COUNT]) {
#if CUT
  w[0] = pm_load_vec4(r, p.r_offset + at);
#if COUNT > 1
  w[1] = pm_load_vec4(r1, p.r1_offset + at);
#endif
#if COUNT > 2
  w[2] = pm_load_vec4(r2, p.r2_offset + at);
#endif
#if COUNT > 3
  w[3] = pm_load_vec4(r3, p.r3_offset + at);
#endif
#else
  [[unroll]] for (uint gate = 0u; gate < uint(COUNT); ++gate) w[gate] = pm_load_vec4(r, at + gate * gate_stride);
#endif
}

void main() {
#if CUT
  const uint blocks = p.blocks, first_block = p.first_block;
#else
  const uint blocks = (p.units + 15u) / 16u, first_block = 0u;
#endif
  const uvec3 group = grid_group(blocks, (p.batch + uint(ROWS) - 1u) / uint(ROWS));
#if CUT
  if (is_past_grid(group, 1u)) return;
  const uint d = p.direction, first_gate = 0u;
#else
  if (is_past_grid(group, p.directions)) return;
  const uint d = group.z, first_gate = d * uint(GATES) + uint(FIRST);
#endif
  const uint unit = (first_block + group.x) * 16u + gl_LocalInvocationID.x, part = gl_LocalInvocationID.y;
  const uint first_row = group.y * uint(ROWS);
  const uint quads = p.width / 4u, gate_stride = blocks * quads * 16u;
  float sums[ROWS * COUNT];
  [[unroll]] for (uint i = 0u; i < uint(ROWS * COUNT); ++i) sums[i] = 0.0;
  const uint factor = FIRST == 2 ? p.cells : p.h_from;
  uint rows[ROWS];  // offsets in vec4s
  [[unroll]] for (uint row = 0u; row < uint(ROWS); ++row)
    rows[row] = factor / 4u + (d * p.batch + min(first_row + row, p.batch - 1u)) * quads;
  uint at = first_gate * gate_stride + (group.x * quads + part) * 16u + gl_LocalInvocationID.x;
  uint k = part;
#if LANES
  // A subgroup of 8 loads eight vec4s together, and broadcasts them by subgroupShuffle with constant lanes.
  for (; k + 8u <= quads; k += 8u) {
    vec4 held[ROWS];
    [[unroll]] for (uint row = 0u; row < uint(ROWS); ++row) held[row] = fours[rows[row] + k + gl_SubgroupInvocationID];
    [[unroll]] for (uint lane = 0u; lane < 8u; ++lane) {
      vec4 w[COUNT];
      load_gates(at, gate_stride, w);
      [[unroll]] for (uint row = 0u; row < uint(ROWS); ++row) {
        const vec4 h = subgroupShuffle(held[row], lane);
        [[unroll]] for (uint gate = 0u; gate < uint(COUNT); ++gate) sums[row * COUNT + gate] += dot(w[gate], h);
      }
      at += 16u;
    }
  }
#endif
  for (; k < quads; k += SPLIT) {
    vec4 w[COUNT];
    load_gates(at, gate_stride, w);
    [[unroll]] for (uint row = 0u; row < uint(ROWS); ++row) {
      const vec4 h = fours[rows[row] + k];
      [[unroll]] for (uint gate = 0u; gate < uint(COUNT); ++gate) sums[row * COUNT + gate] += dot(w[gate], h);
    }
    at += SPLIT * 16u;
  }
#if MEETS
  [[unroll]] for (uint i = 0u; i < uint(ROWS * COUNT); ++i) parts[(part * ROWS * COUNT + i) * 16u + gl_LocalInvocationID.x] = sums[i];
  barrier();
#endif
  if (unit >= p.width) return;
  [[unroll]] for (uint row = 0u; row < uint(ROWS); ++row) {
#if MEETS
    if (row % SPLIT != part) continue;
#endif
    const uint b = first_row + row;
    if (b >= p.batch) continue;
    const uint own = (d * p.batch + b) * p.width + unit;  // index of this unit in the state
#if CELL == kGru && PART == 0
    const uint made_at = p.cells + own;
#else
    const uint made_at = p.h_to + own;
#endif
    if (unit >= p.units) {  // zero padding for the vec4s of the next step
      state[made_at] = 0.0;
      continue;
    }
    const uint length = length_of(b), t = time_of(p.step, length, d), from = input_of(t, b, d, unit);
    float v[COUNT], product[COUNT];
    [[unroll]] for (uint gate = 0u; gate < uint(COUNT); ++gate) {
      v[gate] = pm_load(x, from + (uint(FIRST) + gate) * p.units);
#if MEETS
      product[gate] = 0.0;
      for (uint other = 0u; other < SPLIT; ++other)
        product[gate] += parts[((other * ROWS + row) * COUNT + gate) * 16u + gl_LocalInvocationID.x];
#else
      product[gate] = sums[row * COUNT + gate];
#endif
    }
    const float old = state[p.h_from + own];
#if CELL == kGru && PART == 0
    state[made_at] = activate_f(v[1] + product[1], d) * old;
    state[made_at + p.directions * p.batch * p.width] = activate_f(v[0] + product[0], d);
#else
    const bool running = p.step < length;
#if CELL == kRnn
    const float made = activate_f(v[0] + product[0], d);
#elif CELL == kLstm
    float cell = state[p.cells + own];
    const float made = advance(vec4(v[0] + product[0], v[1] + product[1], v[2] + product[2], v[3] + product[3]), cell, d, unit);
    if (running) state[p.cells + own] = cell;
#elif CELL == kGruLinear
    const float made = advance(vec3(v[0] + product[0], v[1] + product[1], v[2]), product[2], old, d, unit);
#else
    const float z = state[p.cells + p.directions * p.batch * p.width + own];
    const float made = (1.0 - z) * activate_g(v[0] + product[0], d) + z * old;
#endif
    state[made_at] = running ? made : old;
    store_output(t, b, d, unit, running ? made : 0.0);
#endif
  }
}

// Matrix products of a few rows: y = x w, bound by the reading of w. A workgroup computes 32 columns of all ROWS rows; four
// neighbouring invocations read 32 columns of one row of w, eight each, and the others take further rows of w. Their sums meet in
// shared memory: eight of them, then the rest.
// Packed weights: [batch][depth][columns rounded up to 8].
#version 450
#extension GL_EXT_control_flow_attributes : require
#include "include/math.glsl"
#include "include/tensor.glsl"
#include "include/contraction.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint INVOCATIONS = 1024u;
layout(constant_id = 1) const uint ROWS = 1u;

layout(binding = 0) readonly buffer X { sfp x[]; };
#if PM_GRAIN == 2
layout(binding = 1) readonly buffer W { uvec4 w[]; };  // eights
#else
layout(binding = 1) readonly buffer W { vec4 w[]; };
#endif
layout(binding = 2) buffer Y { sfp y[]; };

const uint kColumns = 32u, kAcross = 4u;  // of a workgroup; invocations that read them
const uint kAhead = 8u;                   // rows of w that an invocation has on their way
const uint DEEP = INVOCATIONS / kAcross;  // rows of w that a workgroup reads at once

const uint PARTS = INVOCATIONS / kColumns;  // that eight sums become

shared vec4 meeting[ROWS * INVOCATIONS * 2u];     // [row][down][four of columns]
shared float parts[ROWS * INVOCATIONS];           // [row][part][column]

// Two numbers of a word.
vec2 unpack(uint word) {
#if NCNN_bf16_packed || NCNN_bf16_storage
  return uintBitsToFloat(uvec2(word << 16, word & 0xffff0000u));
#else
  return unpackHalf2x16(word);
#endif
}

void main() {
  const uint across = gl_LocalInvocationIndex % kAcross, down = gl_LocalInvocationIndex / kAcross;
  const uint eights = (p.channels_out + 7u) / 8u;  // of a row of w
  const uint eight = min(gl_WorkGroupID.y * (kColumns / 8u) + across, eights - 1u);
  const uint first_w = (W_GROUP >> 3) + eight, first_x = p.x_offset + gl_WorkGroupID.z * p.x_stride_group;
  vec4 sums[ROWS * 2u];
  [[unroll]] for (uint i = 0u; i < ROWS * 2u; ++i) sums[i] = vec4(0.0);
  for (uint begin = down; begin < p.channels_in; begin += DEEP * kAhead) {
#if PM_GRAIN == 2
    uvec4 held[kAhead];
#else
    vec4 held[kAhead * 2u];
#endif
    [[unroll]] for (uint k = 0u; k < kAhead; ++k) {
      const uint at = first_w + min(begin + k * DEEP, p.channels_in - 1u) * eights;
#if PM_GRAIN == 2
      held[k] = w[at];
#else
      held[k * 2u] = w[at * 2u];
      held[k * 2u + 1u] = w[at * 2u + 1u];
#endif
    }
    [[unroll]] for (uint k = 0u; k < kAhead; ++k) {
      const uint depth = begin + k * DEEP;
      if (depth >= p.channels_in) break;
#if PM_GRAIN == 2
      const vec4 low = vec4(unpack(held[k].x), unpack(held[k].y)), high = vec4(unpack(held[k].z), unpack(held[k].w));
#else
      const vec4 low = held[k * 2u], high = held[k * 2u + 1u];
#endif
      [[unroll]] for (uint row = 0u; row < ROWS; ++row) {
        const float v = pm_load(x, first_x + min(row, p.pixels - 1u) * p.x_stride_w + depth * p.x_stride_c);
        sums[row * 2u] = fma(vec4(v), low, sums[row * 2u]);
        sums[row * 2u + 1u] = fma(vec4(v), high, sums[row * 2u + 1u]);
      }
    }
  }
  [[unroll]] for (uint i = 0u; i < ROWS * 2u; ++i)
    meeting[(i / 2u * DEEP + down) * (kColumns / 4u) + across * 2u + i % 2u] = sums[i];
  barrier();
  const uint column = gl_LocalInvocationIndex % kColumns, part = gl_LocalInvocationIndex / kColumns;
  [[unroll]] for (uint row = 0u; row < ROWS; ++row) {
    float sum = 0.0;
    [[unroll]] for (uint i = 0u; i < DEEP / PARTS; ++i)
      sum += meeting[(row * DEEP + part * (DEEP / PARTS) + i) * (kColumns / 4u) + column / 4u][column % 4u];
    parts[(row * PARTS + part) * kColumns + column] = sum;
  }
  barrier();
  const uint row = part, channel = gl_WorkGroupID.y * kColumns + column;
  if (row >= min(ROWS, p.pixels) || channel >= p.channels_out) return;
  float sum = 0.0;
  for (uint i = 0u; i < PARTS; ++i) sum += parts[(row * PARTS + i) * kColumns + column];
  const uint at = y_index(uvec3(0u, 0u, row)) + gl_WorkGroupID.z * p.y_stride_group + channel * p.y_stride_c;
  pm_store(y, at, epilogue(sum + channel_bias(channel) + element_bias(row, channel)));
}

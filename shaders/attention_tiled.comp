// Flash attention in shared memory without cooperative matrices: y = softmax(scale q k^T + mask) v; see include/attention.glsl for buffers.
//
// Workgroup (x, y, z) = (64 queries, head of a batch item, VEC4_PER_THREAD * 64 columns of V), 16 x 16 invocations. An invocation computes
// 4 queries x 2 keys of the scores, then 4 queries x VEC4_PER_THREAD vec4s of the output; four invocations share the exponentials of a row.
//   for each tile of 32 keys:
//     S = q k^T, 16 elements of the head at a time through shared memory
//     mask; S to shared memory; online softmax of each row; P to shared memory
//     acc = acc * factor + P v, 16 keys at a time through shared memory
//   reduce the sums of the rows; y = acc / l
//
// For GPUs without suitable cooperative matrices that support 256 invocations and have enough shared memory. Selected in attention.cpp
// (make_tiled_plan).
#version 450
#extension GL_EXT_control_flow_attributes : require
#define GRID_AXES 0
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#include "include/attention.glsl"
layout(local_size_x = 256) in;
layout(constant_id = 2) const uint VEC4_PER_THREAD = 1u;  // vec4s of V per invocation: with one each, the 16 invocations of a row cover 64 columns

const uint kRows = 64u, kKeys = 32u, kHeadChunk = 16u;
const uint kRowQ = kHeadChunk + 1u, kRowP = kKeys + 1u, kColumns = VEC4_PER_THREAD * 64u;  // padded by one to avoid bank conflicts
const uint kKeysQ = kRows * kRowQ, kStagedQ = kKeysQ + kKeys * kRowQ, kStagedV = kHeadChunk * kColumns;
shared float staged[kStagedQ > kStagedV ? kStagedQ : kStagedV];
shared float scores[kRows * kRowP];
shared float reduce_buffer[kRows * 4u];
shared float factors[kRows], row_sums[kRows];

void main() {
  const uint batch = grid_group().y / p.heads, head = grid_group().y % p.heads, first_row = tile_index() * kRows;
  const uint tiles = (V_SIZE + kColumns - 1u) / kColumns, first_column = grid_group().z % tiles * kColumns;
  const uint across = gl_LocalInvocationIndex % 16u, down = gl_LocalInvocationIndex / 16u;
  const uint at_k = k_head_offset(batch, head), at_v = v_head_offset(batch, head);
  const uint last_row = min(first_row + kRows, p.rows) - 1u;
  const int begin = visible_keys(batch, first_row).x, end = visible_keys(batch, last_row).y;
  vec4 sums[4u * VEC4_PER_THREAD];
  [[unroll]] for (uint i = 0u; i < 4u * VEC4_PER_THREAD; ++i) sums[i] = vec4(0.0);
  // Softmax state of the row whose exponentials this invocation computes with three others.
  float row_max = minus_infinity, sum = 0.0;
  const uint softmax_row = gl_LocalInvocationIndex / 4u, softmax_lane = gl_LocalInvocationIndex % 4u;
  for (int key = begin; key < end; key += int(kKeys)) {
    float products[8];
    [[unroll]] for (uint i = 0u; i < 8u; ++i) products[i] = 0.0;
    for (uint head_offset = 0u; head_offset < SIZE; head_offset += kHeadChunk) {
      barrier();  // wait until no invocation is still reading the previous tile
      {
        const uint row = gl_LocalInvocationIndex / 4u, column = gl_LocalInvocationIndex % 4u * 4u;
        const vec4 x4 = load_q(q_row_offset(batch, head, min(first_row + row, last_row)), head_offset + column);
        for (uint j = 0u; j < 4u; ++j) staged[row * kRowQ + column + j] = x4[j];
        if (row < kKeys) {
          const vec4 k4 = load_k(at_k + uint(min(key + int(row), end - 1)) * p.k_row, head_offset + column);
          for (uint j = 0u; j < 4u; ++j) staged[kKeysQ + row * kRowQ + column + j] = k4[j];
        }
      }
      barrier();
      [[unroll]] for (uint d = 0u; d < kHeadChunk; ++d) {
        const float a = staged[kKeysQ + across * kRowQ + d], b = staged[kKeysQ + (across + 16u) * kRowQ + d];
        [[unroll]] for (uint i = 0u; i < 4u; ++i) {
          const float x = staged[(down * 4u + i) * kRowQ + d];
          products[i * 2u] = fma(x, a, products[i * 2u]);
          products[i * 2u + 1u] = fma(x, b, products[i * 2u + 1u]);
        }
      }
    }
    [[unroll]] for (uint i = 0u; i < 8u; ++i) {
      const uint tile_row = down * 4u + i / 2u, column = across + i % 2u * 16u, row = min(first_row + tile_row, last_row);
      const int at = key + int(column);
      const ivec2 visible_range = visible_keys(batch, row);
      scores[tile_row * kRowP + column] = at >= visible_range.x && at < visible_range.y ? attention_score(batch, head, row, uint(at), products[i]) : minus_infinity;
    }
    barrier();
    float new_max = row_max;
    [[unroll]] for (uint i = 0u; i < kKeys / 4u; ++i) new_max = max(new_max, scores[softmax_row * kRowP + softmax_lane + i * 4u]);
    reduce_buffer[gl_LocalInvocationIndex] = new_max;
    barrier();
    for (uint i = 0u; i < 4u; ++i) new_max = max(new_max, reduce_buffer[softmax_row * 4u + i]);
    const float shift = softmax_shift(new_max), factor = exp(row_max - shift);
    row_max = new_max;
    sum *= factor;
    [[unroll]] for (uint i = 0u; i < kKeys / 4u; ++i) {
      const uint at = softmax_row * kRowP + softmax_lane + i * 4u;
      const float exponential = exp(scores[at] - shift);
      scores[at] = exponential;
      sum += exponential;
    }
    if (softmax_lane == 0u) factors[softmax_row] = factor;
    [[unroll]] for (uint half_tile = 0u; half_tile < kKeys; half_tile += kHeadChunk) {
      barrier();  // wait until P has been stored and no invocation is still reading the previous tile
      for (uint i = 0u; i < VEC4_PER_THREAD; ++i) {
        const uint row = gl_LocalInvocationIndex / 16u, column = across * 4u + i * 64u;
        const vec4 x4 = load_v(at_v + uint(min(key + int(half_tile + row), end - 1)) * p.v_row, first_column + column);
        for (uint j = 0u; j < 4u; ++j) staged[row * kColumns + column + j] = x4[j];
      }
      barrier();
      if (half_tile == 0u) [[unroll]] for (uint i = 0u; i < 4u * VEC4_PER_THREAD; ++i) sums[i] *= factors[down * 4u + i / VEC4_PER_THREAD];
      for (uint d = 0u; d < kHeadChunk; ++d) {
        vec4 values[VEC4_PER_THREAD];
        [[unroll]] for (uint i = 0u; i < VEC4_PER_THREAD; ++i)
          for (uint j = 0u; j < 4u; ++j) values[i][j] = staged[d * kColumns + across * 4u + i * 64u + j];
        [[unroll]] for (uint i = 0u; i < 4u; ++i) {
          const float weight = scores[(down * 4u + i) * kRowP + half_tile + d];
          [[unroll]] for (uint c = 0u; c < VEC4_PER_THREAD; ++c) sums[i * VEC4_PER_THREAD + c] += weight * values[c];
        }
      }
    }
  }
  barrier();
  reduce_buffer[gl_LocalInvocationIndex] = sum;
  barrier();
  if (softmax_lane == 0u) row_sums[softmax_row] = (reduce_buffer[softmax_row * 4u] + reduce_buffer[softmax_row * 4u + 1u]) + (reduce_buffer[softmax_row * 4u + 2u] + reduce_buffer[softmax_row * 4u + 3u]);
  barrier();
  [[unroll]] for (uint i = 0u; i < 4u; ++i) {
    const uint row = first_row + down * 4u + i;
    if (row >= p.rows) continue;
    const uint at = y_row_offset(batch, head, row);
    [[unroll]] for (uint c = 0u; c < VEC4_PER_THREAD; ++c)
      store_output_vec4(at, first_column + across * 4u + c * 64u, sums[i * VEC4_PER_THREAD + c], row_sums[down * 4u + i]);
  }
}

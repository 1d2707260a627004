// Flash attention in shared memory without cooperative matrices: y = softmax(scale q k^T + mask) v; see include/attention.glsl for buffers.
//
// Workgroup (x, y, z) = (64 queries, head of a batch item, FOURS * 64 columns of V), 16 x 16 invocations. An invocation computes 4 queries
// x 2 keys of the scores, then 4 queries x FOURS vec4s of the output; four invocations share the exponentials of a row.
//   for each tile of 32 keys:
//     S = q k^T, 16 elements of the head at a time through shared memory
//     mask; S to shared memory; online softmax of each row; P to shared memory
//     acc = acc * factor + P v, 16 keys at a time through shared memory
//   reduce the sums of the rows; y = acc / l
//
// For GPUs without suitable cooperative matrices that support 256 invocations and have enough shared memory. Selected in attention.cpp
// (tiled_plan).
#version 450
#extension GL_EXT_control_flow_attributes : require
#define GRID_AXES 0
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#include "include/attention.glsl"
layout(local_size_x = 256) in;
layout(constant_id = 2) const uint FOURS = 1u;  // vec4s of V per invocation; each covers 64 columns

const uint kRows = 64u, kKeys = 32u, kDepth = 16u;
const uint kRowQ = kDepth + 1u, kRowP = kKeys + 1u, kColumns = FOURS * 64u;  // padded by one to avoid bank conflicts
const uint kKeysQ = kRows * kRowQ, kStagedQ = kKeysQ + kKeys * kRowQ, kStagedV = kDepth * kColumns;
shared float staged[kStagedQ > kStagedV ? kStagedQ : kStagedV];
shared float scores[kRows * kRowP];
shared float met[kRows * 4u];
shared float factors[kRows], row_sums[kRows];

void main() {
  const uint image = grid_group().y / p.heads, head = grid_group().y % p.heads, first_row = tile_of() * kRows;
  const uint tiles = (V_SIZE + kColumns - 1u) / kColumns, first_column = grid_group().z % tiles * kColumns;
  const uint across = gl_LocalInvocationIndex % 16u, down = gl_LocalInvocationIndex / 16u;
  const uint at_k = first_k(image, head), at_v = first_v(image, head);
  const uint last_row = min(first_row + kRows, p.rows) - 1u;
  const int begin = seen_keys(image, first_row).x, end = seen_keys(image, last_row).y;
  vec4 sums[4u * FOURS];
  [[unroll]] for (uint i = 0u; i < 4u * FOURS; ++i) sums[i] = vec4(0.0);
  // Softmax state of the row whose exponentials this invocation shares.
  float largest = minus_infinity, sum = 0.0;
  const uint own_row = gl_LocalInvocationIndex / 4u, own_part = gl_LocalInvocationIndex % 4u;
  for (int key = begin; key < end; key += int(kKeys)) {
    float products[8];
    [[unroll]] for (uint i = 0u; i < 8u; ++i) products[i] = 0.0;
    for (uint depth = 0u; depth < SIZE; depth += kDepth) {
      barrier();  // wait until no invocation is still reading the previous tile
      {
        const uint row = gl_LocalInvocationIndex / 4u, column = gl_LocalInvocationIndex % 4u * 4u;
        const vec4 four = load_q(first_q(image, head, min(first_row + row, last_row)), depth + column);
        for (uint j = 0u; j < 4u; ++j) staged[row * kRowQ + column + j] = four[j];
        if (row < kKeys) {
          const vec4 other = load_k(at_k + uint(min(key + int(row), end - 1)) * p.k_row, depth + column);
          for (uint j = 0u; j < 4u; ++j) staged[kKeysQ + row * kRowQ + column + j] = other[j];
        }
      }
      barrier();
      [[unroll]] for (uint d = 0u; d < kDepth; ++d) {
        const float a = staged[kKeysQ + across * kRowQ + d], b = staged[kKeysQ + (across + 16u) * kRowQ + d];
        [[unroll]] for (uint i = 0u; i < 4u; ++i) {
          const float x = staged[(down * 4u + i) * kRowQ + d];
          products[i * 2u] = fma(x, a, products[i * 2u]);
          products[i * 2u + 1u] = fma(x, b, products[i * 2u + 1u]);
        }
      }
    }
    [[unroll]] for (uint i = 0u; i < 8u; ++i) {
      const uint own = down * 4u + i / 2u, column = across + i % 2u * 16u, row = min(first_row + own, last_row);
      const int at = key + int(column);
      const ivec2 seen = seen_keys(image, row);
      scores[own * kRowP + column] = at >= seen.x && at < seen.y ? score_of(image, head, row, uint(at), products[i]) : minus_infinity;
    }
    barrier();
    float now = largest;
    [[unroll]] for (uint i = 0u; i < kKeys / 4u; ++i) now = max(now, scores[own_row * kRowP + own_part + i * 4u]);
    met[gl_LocalInvocationIndex] = now;
    barrier();
    for (uint i = 0u; i < 4u; ++i) now = max(now, met[own_row * 4u + i]);
    const float reference = reference_of(now), factor = exp(largest - reference);
    largest = now;
    sum *= factor;
    [[unroll]] for (uint i = 0u; i < kKeys / 4u; ++i) {
      const uint at = own_row * kRowP + own_part + i * 4u;
      const float exponential = exp(scores[at] - reference);
      scores[at] = exponential;
      sum += exponential;
    }
    if (own_part == 0u) factors[own_row] = factor;
    [[unroll]] for (uint half_of = 0u; half_of < kKeys; half_of += kDepth) {
      barrier();  // P has been stored, and no invocation is still reading the previous tile
      for (uint i = 0u; i < FOURS; ++i) {
        const uint row = gl_LocalInvocationIndex / 16u, column = across * 4u + i * 64u;
        const vec4 four = load_v(at_v + uint(min(key + int(half_of + row), end - 1)) * p.v_row, first_column + column);
        for (uint j = 0u; j < 4u; ++j) staged[row * kColumns + column + j] = four[j];
      }
      barrier();
      if (half_of == 0u) [[unroll]] for (uint i = 0u; i < 4u * FOURS; ++i) sums[i] *= factors[down * 4u + i / FOURS];
      for (uint d = 0u; d < kDepth; ++d) {
        vec4 values[FOURS];
        [[unroll]] for (uint i = 0u; i < FOURS; ++i)
          for (uint j = 0u; j < 4u; ++j) values[i][j] = staged[d * kColumns + across * 4u + i * 64u + j];
        [[unroll]] for (uint i = 0u; i < 4u; ++i) {
          const float weight = scores[(down * 4u + i) * kRowP + half_of + d];
          [[unroll]] for (uint c = 0u; c < FOURS; ++c) sums[i * FOURS + c] += weight * values[c];
        }
      }
    }
  }
  barrier();
  met[gl_LocalInvocationIndex] = sum;
  barrier();
  if (own_part == 0u) row_sums[own_row] = (met[own_row * 4u] + met[own_row * 4u + 1u]) + (met[own_row * 4u + 2u] + met[own_row * 4u + 3u]);
  barrier();
  [[unroll]] for (uint i = 0u; i < 4u; ++i) {
    const uint row = first_row + down * 4u + i;
    if (row >= p.rows) continue;
    const uint at = first_y(image, head, row);
    [[unroll]] for (uint c = 0u; c < FOURS; ++c)
      store_four(at, first_column + across * 4u + c * 64u, sums[i * FOURS + c], row_sums[down * 4u + i]);
  }
}

// Dequantises block-quantised weights to floats, for GEMMs of many rows: y = (w - zero) * scale.
//
// w: [columns, depth] integers of BITS bits, or with FRAGMENTS as packed by pack_quant_weights.comp. scale, zero: see include/quant_weights.glsl. y:
// [columns, depth], or with TRANSPOSED [depth, columns], for GEMMs with unpacked weights.
// One invocation writes 8 elements. With TRANSPOSED it writes 8 columns x 8 rows, or with FRAGMENTS 8 columns x 8 rows in each 32 of 128,
// and four neighbouring invocations read contiguous memory.
//
// For all devices. Selected in cpp/operators/conv_gemm/quant_gemm.cpp.
#version 450
#if FRAGMENTS
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#endif
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#define FLOATS 1
#include "include/quant_weights.glsl"

layout(local_size_x = LOCAL_SIZE) in;

#if FRAGMENTS && TRANSPOSED
// Returns element `k` (of 8) in K step `j` (of four); within a word the even elements come first.
float element(uvec4 words[BITS / 4u], uint j, uint k) {
  const uint place = k % IN_WORD / 2u + k % 2u * (IN_WORD / 2u), at = j * (BITS / 4u) + k / IN_WORD;
  return float(bitfieldExtract(words[at / 4u][at % 4u], int(place * BITS), BITS));
}

void main() {
  const uint pieces = BITS / 4u, chunks = (p.depth + 127u) / 128u, groups = p.columns / 8u;
  const uint index = grid_invocation(), octet = index % 4u, group = index / 4u % groups, stretch = index / 4u / groups;
  if (stretch >= chunks) return;
  const uint chunk = group / 2u * chunks + stretch, term = chunk * 16u + group % 2u * 8u;
  uvec4 words[8][BITS / 4u];
  [[unroll]] for (uint c = 0u; c < 8u; ++c)
    [[unroll]] for (uint i = 0u; i < pieces; ++i)
      words[c][i] = w[p.w_offset / IN_WORD / 4u + ((chunk * 2u + group % 2u) * pieces + i) * 32u + c * 4u + octet];
  [[unroll]] for (uint j = 0u; j < 4u; ++j) {
    const uint first = stretch * 128u + j * 32u + octet * 8u;
    float point[8], unit[8];
    [[unroll]] for (uint c = 0u; c < 8u; ++c) {
      unit[c] = term_of(scale[term + c], j * 32u);
#if ZERO
      point[c] = term_of(zero[term + c], j * 32u);
#else
      point[c] = float(POINT) + kBias;
#endif
    }
    [[unroll]] for (uint k = 0u; k < 8u; ++k) {
      if (first + k >= p.depth) return;
      uvec4 made;
      [[unroll]] for (uint c = 0u; c < 4u; ++c)
        made[c] = packFloat2x16(f16vec2((element(words[2u * c], j, k) - point[2u * c]) * unit[2u * c],
                                        (element(words[2u * c + 1u], j, k) - point[2u * c + 1u]) * unit[2u * c + 1u]));
      y[(p.y_offset + (first + k) * p.columns) / 8u + group] = made;
    }
  }
}
#elif FRAGMENTS
// Returns element `k` of the 8 that start at word `words`; within a word the even elements come first.
float element(uint words, uint k, float point, float unit) {
  const uint place = k % IN_WORD / 2u + k % 2u * (IN_WORD / 2u);
  return (float(bitfieldExtract(w[words + k / IN_WORD], int(place * BITS), BITS)) - point) * unit;
}

void main() {
  const uint first = grid_invocation() * 8u;
  if (first >= p.elements) return;
  const uint pieces = BITS / 4u, chunks = (p.depth + 127u) / 128u, column = first / p.depth, step = first % p.depth;
  const uint chunk = column / 16u * chunks + step / 128u, lane = column % 8u * 4u + step % 32u / 8u;
  const uint word = step % 128u / 32u * pieces;  // word index within the line's part of the chunk
  const uint at = p.w_offset / IN_WORD + (((chunk * 2u + column % 16u / 8u) * pieces + word / 4u) * 32u + lane) * 4u + word % 4u;
  const uint term = chunk * 16u + column % 16u;
  const float unit = term_of(scale[term], step % 128u);
#if ZERO
  const float point = term_of(zero[term], step % 128u);
#else
  const float point = float(POINT) + kBias;
#endif
  vec4 low, high;
  [[unroll]] for (uint k = 0u; k < 4u; ++k) {
    low[k] = element(at, k, point, unit);
    high[k] = element(at, k + 4u, point, unit);
  }
  pm_store4(y, p.y_offset + first, low);
  pm_store4(y, p.y_offset + first + 4u, high);
}
#else
float element(uint i) {
  const uint at = p.w_offset + i, block = i / p.depth * p.blocks + i % p.depth / p.block;
  return (integer_in(w[at / IN_WORD], at % IN_WORD) - zero_point(block)) * scale[block];
}

#if TRANSPOSED
// Returns four columns in K step `step`.
vec4 four(uint column, uint step) {
  return vec4(element(column * p.depth + step), element((column + 1u) * p.depth + step), element((column + 2u) * p.depth + step),
              element((column + 3u) * p.depth + step));
}

void main() {
  const uint index = grid_invocation(), groups = p.columns / 8u;
  const uint first = (index / 4u / groups * 4u + index % 4u) * 8u, column = index / 4u % groups * 8u;
  for (uint step = first; step < min(first + 8u, p.depth); ++step) {
    const uint at = (p.y_offset + step * p.columns + column) / 4u;
    pm_store_vec4(y, at, four(column, step));
    pm_store_vec4(y, at + 1u, four(column + 4u, step));
  }
}
#else
vec4 four(uint i) { return vec4(element(i), element(i + 1u), element(i + 2u), element(i + 3u)); }

void main() {
  const uint first = grid_invocation() * 8u;
  if (first + 8u <= p.elements) {
    const vec4 low = four(first), high = four(first + 4u);
    pm_store4(y, p.y_offset + first, low);
    pm_store4(y, p.y_offset + first + 4u, high);
    return;
  }
  for (uint i = first; i < p.elements; ++i) pm_store(y, p.y_offset + i, element(i));
}
#endif
#endif

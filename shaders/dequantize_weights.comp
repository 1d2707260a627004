// Dequantises block-quantised weights to floats, for GEMMs of many rows: y = (w - zero) * scale.
//
// w: [columns, k_size] integers of BITS bits, or with FRAGMENTS as packed by pack_quant_weights.comp. scale, zero: see
// include/quant_weights.glsl. y: [columns, k_size], or with TRANSPOSED [k_size, columns], for GEMMs with unpacked weights.
// One invocation writes 8 elements. With TRANSPOSED it writes 8 columns x 8 rows. With TRANSPOSED and FRAGMENTS it writes 8 x 8 for each 32
// of 128 K elements, and four neighbouring invocations read contiguous memory.
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
float dequantize_element(uvec4 words[BITS / 4u], uint j, uint k) {
  const uint position = k % IN_WORD / 2u + k % 2u * (IN_WORD / 2u), at = j * (BITS / 4u) + k / IN_WORD;
  return float(bitfieldExtract(words[at / 4u][at % 4u], int(position * BITS), BITS));
}

void main() {
  const uint pieces = BITS / 4u, chunks = (p.k_size + 127u) / 128u, groups = p.columns / 8u;
  const uint index = grid_invocation(), vec8_index = index % 4u, group = index / 4u % groups, chunk_k = index / 4u / groups;
  if (chunk_k >= chunks) return;
  const uint chunk = group / 2u * chunks + chunk_k, scale_index = chunk * 16u + group % 2u * 8u;
  uvec4 words[8][BITS / 4u];
  [[unroll]] for (uint c = 0u; c < 8u; ++c)
    [[unroll]] for (uint i = 0u; i < pieces; ++i)
      words[c][i] = w[p.w_offset / IN_WORD / 4u + ((chunk * 2u + group % 2u) * pieces + i) * 32u + c * 4u + vec8_index];
  [[unroll]] for (uint j = 0u; j < 4u; ++j) {
    const uint first = chunk_k * 128u + j * 32u + vec8_index * 8u;
    float zero_value[8], scale_value[8];
    [[unroll]] for (uint c = 0u; c < 8u; ++c) {
      scale_value[c] = scale_at(scale[scale_index + c], j * 32u);
#if ZERO
      zero_value[c] = scale_at(zero[scale_index + c], j * 32u);
#else
      zero_value[c] = float(POINT) + kBias;
#endif
    }
    [[unroll]] for (uint k = 0u; k < 8u; ++k) {
      if (first + k >= p.k_size) return;
      uvec4 packed;
      [[unroll]] for (uint c = 0u; c < 4u; ++c)
        packed[c] = packFloat2x16(f16vec2((dequantize_element(words[2u * c], j, k) - zero_value[2u * c]) * scale_value[2u * c],
                                        (dequantize_element(words[2u * c + 1u], j, k) - zero_value[2u * c + 1u]) * scale_value[2u * c + 1u]));
      y[(p.y_offset + (first + k) * p.columns) / 8u + group] = packed;
    }
  }
}
#elif FRAGMENTS
// Returns element `k` of the 8 that start at word `words`; within a word the even elements come first.
float dequantize_element(uint words, uint k, float zero_value, float scale_value) {
  const uint position = k % IN_WORD / 2u + k % 2u * (IN_WORD / 2u);
  return (float(bitfieldExtract(w[words + k / IN_WORD], int(position * BITS), BITS)) - zero_value) * scale_value;
}

void main() {
  const uint first = grid_invocation() * 8u;
  if (first >= p.elements) return;
  const uint pieces = BITS / 4u, chunks = (p.k_size + 127u) / 128u, column = first / p.k_size, step = first % p.k_size;
  const uint chunk = column / 16u * chunks + step / 128u, lane = column % 8u * 4u + step % 32u / 8u;
  const uint word = step % 128u / 32u * pieces;  // word index of this column within the chunk
  const uint at = p.w_offset / IN_WORD + (((chunk * 2u + column % 16u / 8u) * pieces + word / 4u) * 32u + lane) * 4u + word % 4u;
  const uint scale_index = chunk * 16u + column % 16u;
  const float scale_value = scale_at(scale[scale_index], step % 128u);
#if ZERO
  const float zero_value = scale_at(zero[scale_index], step % 128u);
#else
  const float zero_value = float(POINT) + kBias;
#endif
  vec4 low, high;
  [[unroll]] for (uint k = 0u; k < 4u; ++k) {
    low[k] = dequantize_element(at, k, zero_value, scale_value);
    high[k] = dequantize_element(at, k + 4u, zero_value, scale_value);
  }
  pm_store4(y, p.y_offset + first, low);
  pm_store4(y, p.y_offset + first + 4u, high);
}
#else
float dequantize_element(uint i) {
  const uint at = p.w_offset + i, block = i / p.k_size * p.blocks + i % p.k_size / p.block;
  return (extract_integer(w[at / IN_WORD], at % IN_WORD) - zero_point(block)) * scale[block];
}

#if TRANSPOSED
// Returns four columns in K step `step`.
vec4 load_vec4(uint column, uint step) {
  return vec4(dequantize_element(column * p.k_size + step), dequantize_element((column + 1u) * p.k_size + step), dequantize_element((column + 2u) * p.k_size + step),
              dequantize_element((column + 3u) * p.k_size + step));
}

void main() {
  const uint index = grid_invocation(), groups = p.columns / 8u;
  const uint first = (index / 4u / groups * 4u + index % 4u) * 8u, column = index / 4u % groups * 8u;
  for (uint step = first; step < min(first + 8u, p.k_size); ++step) {
    const uint at = (p.y_offset + step * p.columns + column) / 4u;
    pm_store_vec4(y, at, load_vec4(column, step));
    pm_store_vec4(y, at + 1u, load_vec4(column + 4u, step));
  }
}
#else
vec4 load_vec4(uint i) { return vec4(dequantize_element(i), dequantize_element(i + 1u), dequantize_element(i + 2u), dequantize_element(i + 3u)); }

void main() {
  const uint first = grid_invocation() * 8u;
  if (first + 8u <= p.elements) {
    const vec4 low = load_vec4(first), high = load_vec4(first + 4u);
    pm_store4(y, p.y_offset + first, low);
    pm_store4(y, p.y_offset + first + 4u, high);
    return;
  }
  for (uint i = first; i < p.elements; ++i) pm_store(y, p.y_offset + i, dequantize_element(i));
}
#endif
#endif

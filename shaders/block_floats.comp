// A matrix in blocks as floats, [columns, depth]: see include/blocks.glsl. An invocation makes eight of them. FRAGMENTS: of the matrix as
// block_pack.comp has laid it out.
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
#include "include/blocks.glsl"

layout(local_size_x = LOCAL_SIZE) in;

#if FRAGMENTS
// Element `k` of eight that begin with word `words`, in each of which the even ones come first.
float element(uint words, uint k, float point, float unit) {
  const uint place = k % IN_WORD / 2u + k % 2u * (IN_WORD / 2u);
  return (float(bitfieldExtract(w[words + k / IN_WORD], int(place * BITS), BITS)) - point) * unit;
}

void main() {
  const uint first = grid_invocation() * 8u;
  if (first >= p.elements) return;
  const uint pieces = BITS / 4u, chunks = (p.depth + 127u) / 128u, column = first / p.depth, step = first % p.depth;
  const uint chunk = column / 16u * chunks + step / 128u, lane = column % 8u * 4u + step % 32u / 8u;
  const uint word = step % 128u / 32u * pieces;  // of this line's share of the chunk
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

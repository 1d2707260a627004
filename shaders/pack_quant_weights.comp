// Packs block-quantised weights for gemm_quant_mma.comp.
//
// x: [columns, k_size] integers of BITS bits. y: [columns / 16][k_size / 128][2][BITS / 4][32 lanes][16 bytes], the order of the fragments.
// Within a word (8 elements of 4 bits, 4 of 8 bits) the even elements come first, so that one mask yields two consecutive elements 16 bits
// apart. Signed integers become unsigned by flipping the sign bit.
// SCALES_OR_ZEROS: packs scales or zero points [columns, blocks] instead, as fp16 [columns / 16][k_size / 128][16][SCALES]; from INTEGERS,
// or from floats (SOURCE_FLOAT: rounded to nearest fp16).
// One invocation writes one word.
//
// For devices that run gemm_quant_mma. Selected in cpp/operators/conv_gemm/quant_gemm.cpp.
#version 450
#extension GL_EXT_control_flow_attributes : require
#include "include/grid.glsl"
#include "include/tensor.glsl"
#include "include/split_fp16.glsl"
layout(local_size_x = LOCAL_SIZE) in;
#if SCALES_OR_ZEROS && SOURCE_FLOAT
layout(binding = 0) readonly buffer X { float x[]; };
#elif SCALES_OR_ZEROS && !INTEGERS
layout(binding = 0) readonly buffer X { sfp x[]; };
#else
layout(binding = 0) readonly buffer X { uint x[]; };
#endif
layout(binding = 1) writeonly buffer Y { uint y[]; };
layout(push_constant) uniform parameter {
  uint words;  // number of output words
  uint k_size, columns, block, blocks;
  uint x_offset, y_offset;
} p;

const uint kInWord = 32u / BITS, kElement = (1u << BITS) - 1u;
#include "include/sign_flip.glsl"

#if SCALES_OR_ZEROS
// Scale or zero point of a column in K step `step`; 0 if out of range.
float scale_or_zero(uint column, uint step) {
  if (column >= p.columns || step >= p.k_size) return 0.0;
  const uint at = p.x_offset + column * p.blocks + step / p.block;
#if INTEGERS && SIGNED
  return float(bitfieldExtract(int(x[at / kInWord]), int(at % kInWord * BITS), BITS)) + kBias;
#elif INTEGERS
  return float(bitfieldExtract(x[at / kInWord], int(at % kInWord * BITS), BITS));
#elif SOURCE_FLOAT
  return round_to_fp16(x[at]);
#else
  return pm_load(x, at);
#endif
}

float scale_or_zero_at(uint i) {
  const uint chunks = (p.k_size + 127u) / 128u, line = i / SCALES;
  return scale_or_zero(line / 16u / chunks * 16u + line % 16u, line / 16u % chunks * 128u + i % SCALES * (128u / SCALES));
}

void main() {
  const uint id = grid_invocation();
  if (id < p.words) y[p.y_offset / 2u + id] = packHalf2x16(vec2(scale_or_zero_at(id * 2u), scale_or_zero_at(id * 2u + 1u)));
}
#else
void main() {
  const uint id = grid_invocation();
  if (id >= p.words) return;
  const uint pieces = BITS / 4u, chunks = (p.k_size + 127u) / 128u;
  const uint lane = id / 4u % 32u, piece = id / 128u % pieces, tile_half = id / 128u / pieces;
  const uint word = piece * 4u + id % 4u;  // word index of this column within the chunk; a word has 8 or 4 elements
  const uint column = tile_half / 2u / chunks * 16u + tile_half % 2u * 8u + lane / 4u;
  const uint step = tile_half / 2u % chunks * 128u + word / pieces * 32u + lane % 4u * 8u + word % pieces * 4u;
  uint packed = 0u;
  if (column < p.columns && step < p.k_size) {
    const uint source = x[(p.x_offset + column * p.k_size + step) / kInWord] ^ kSignMask;
    [[unroll]] for (uint k = 0u; k < kInWord; ++k) {
      const uint position = k / 2u + k % 2u * (kInWord / 2u);
      packed |= (source >> (k * BITS) & kElement) << (position * BITS);
    }
  }
  y[p.y_offset / kInWord + id] = packed;
}
#endif

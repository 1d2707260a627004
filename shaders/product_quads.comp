// Matrix products of middling size on matrix units whose components lie where attention_quads.comp says. Both operands come from memory in
// the order in which the matrix units take them, sixteen bytes an invocation, without shared memory: the products of 32 steps of the depth
// are summed in an order in which an invocation's eight steps are neighbours. A workgroup computes TILE_P rows by TILE_C columns, each of
// its subgroups SUB_P by SUB_C of them; subgroups that share the depth of a tile add their sums in shared memory.
// Packed weights: [columns / 8][depth / 32][32][8], as conv_pack.comp makes FRAGMENTS; x lies by rows, in whole eights.
#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#define GRID_AXES 0
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#include "include/contraction.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint INVOCATIONS = 128u;  // a subgroup of 32 for each share of the depth
layout(constant_id = 1) const uint TILE_P = 32u;
layout(constant_id = 2) const uint TILE_C = 32u;
layout(constant_id = 3) const uint SUB_P = 32u;
layout(constant_id = 4) const uint SUB_C = 32u;
layout(constant_id = 5) const uint AHEAD = 1u;  // chunks of 32 steps that are on their way at once
layout(constant_id = 6) const uint EARLY = 0u;  // 1: the next chunks are read before these are multiplied
layout(constant_id = 7) const uint WHOLE = 0u;  // 1: all subgroups take all of their chunks, which the depth fills

layout(binding = 0) readonly buffer X { uvec4 x[]; };
layout(binding = 1) readonly buffer W { uvec4 w[]; };
#if Y_VEC4
layout(binding = 2) writeonly buffer Y { YFP4 y[]; };
#else
layout(binding = 2) buffer Y { YFP y[]; };
#endif
#include "include/four_channels.glsl"

const uint ROWS = SUB_P / 16u, COLUMNS = SUB_C / 16u;
const uint ACROSS = TILE_C / SUB_C, TILES = TILE_P / SUB_P * ACROSS, SPLIT = INVOCATIONS / 32u / TILES;
const uint QUADS = TILE_C / 4u, ROW_Y = QUADS + 1u;  // one more, so that rows begin in different banks
shared uvec4 meeting[SPLIT * TILE_P * ROW_Y];

coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> sums[ROWS * COLUMNS];

uint eights, chunks;                        // of the depth
uint rows[2 * ROWS], columns[2 * COLUMNS];  // the eights at which the lines of this invocation begin
// The operands' elements of this invocation: AHEAD chunks of each, or twice as many where the next ones are read early.
uvec4 held_x[(1u + EARLY) * AHEAD * 2u * ROWS], held_w[(1u + EARLY) * AHEAD * 2u * COLUMNS];

// The components of either operand: four steps of one of its lines, and of the line that is eight further on.
#define SET_COMPONENTS(matrix, low, high)                                                                \
  {                                                                                                      \
    const f16vec2 low_x = unpackFloat2x16(low.x), low_y = unpackFloat2x16(low.y);                        \
    const f16vec2 high_x = unpackFloat2x16(high.x), high_y = unpackFloat2x16(high.y);                    \
    matrix[0] = low_x.x, matrix[1] = low_x.y, matrix[2] = low_y.x, matrix[3] = low_y.y;                  \
    matrix[4] = high_x.x, matrix[5] = high_x.y, matrix[6] = high_y.x, matrix[7] = high_y.y;              \
  }

// Reads AHEAD chunks from `begin` on into half `to` of what is held. There is no branch, so that all loads are on their way at once: past
// the end the last eight is read and counts as zero.
void read(uint to, uint begin) {
  [[unroll]] for (uint k = 0u; k < AHEAD; ++k) {
    const uint chunk = begin + k, eight = chunk * 4u + gl_SubgroupInvocationID % 4u, at = to * AHEAD + k;
    const uint at_w = (WHOLE != 0u ? chunk : min(chunk, chunks - 1u)) * 32u, at_x = WHOLE != 0u ? eight : min(eight, eights - 1u);
    [[unroll]] for (uint i = 0u; i < 2u * COLUMNS; ++i) held_w[at * 2u * COLUMNS + i] = w[columns[i] + at_w];
    [[unroll]] for (uint i = 0u; i < 2u * ROWS; ++i) held_x[at * 2u * ROWS + i] = x[rows[i] + at_x];
    if (WHOLE == 0u && eight >= eights) {
      [[unroll]] for (uint i = 0u; i < 2u * COLUMNS; ++i) held_w[at * 2u * COLUMNS + i] = uvec4(0u);
      [[unroll]] for (uint i = 0u; i < 2u * ROWS; ++i) held_x[at * 2u * ROWS + i] = uvec4(0u);
    }
  }
}

// Adds the products of the chunks in half `from` of what is held.
void multiply(uint from) {
  [[unroll]] for (uint k = 0u; k < AHEAD; ++k)
    [[unroll]] for (uint part = 0u; part < 2u; ++part) {
      const uint at = from * AHEAD + k;
      coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> a[ROWS];
      [[unroll]] for (uint i = 0u; i < ROWS; ++i) {
        const uvec4 one = held_x[(at * ROWS + i) * 2u], other = held_x[(at * ROWS + i) * 2u + 1u];
        const uvec2 low = part == 0u ? one.xy : one.zw, high = part == 0u ? other.xy : other.zw;
        SET_COMPONENTS(a[i], low, high)
      }
      [[unroll]] for (uint j = 0u; j < COLUMNS; ++j) {
        coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> b;
        const uvec4 one = held_w[(at * COLUMNS + j) * 2u], other = held_w[(at * COLUMNS + j) * 2u + 1u];
        const uvec2 low = part == 0u ? one.xy : one.zw, high = part == 0u ? other.xy : other.zw;
        SET_COMPONENTS(b, low, high)
        [[unroll]] for (uint i = 0u; i < ROWS; ++i) sums[i * COLUMNS + j] = coopMatMulAdd(a[i], b, sums[i * COLUMNS + j]);
      }
    }
}

void main() {
  const uint first_row = grid_group().x * TILE_P, first_column = grid_group().y * TILE_C;
  const uint share = gl_SubgroupID / TILES, tile = gl_SubgroupID % TILES;
  const uint tile_row = tile / ACROSS * SUB_P, tile_column = tile % ACROSS * SUB_C;
  const uint blocks = (p.channels_out + 7u) / 8u;
  eights = (p.channels_in + 7u) / 8u, chunks = (eights + 3u) / 4u;
  [[unroll]] for (uint i = 0u; i < 2u * ROWS; ++i) {
    const uint row = first_row + tile_row + gl_SubgroupInvocationID / 4u + i * 8u;
    rows[i] = (p.x_offset + min(row, p.pixels - 1u) * p.x_stride_w) >> 3;
  }
  [[unroll]] for (uint i = 0u; i < 2u * COLUMNS; ++i)
    columns[i] = (p.w_offset >> 3) + min((first_column + tile_column) / 8u + i, blocks - 1u) * chunks * 32u + gl_SubgroupInvocationID;
  [[unroll]] for (uint i = 0u; i < ROWS * COLUMNS; ++i)
    sums[i] = coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0.0);
  const uint step = SPLIT * AHEAD;
  uint begin = share * AHEAD;
  if (EARLY == 0u) {
    for (; begin < chunks; begin += step) {
      read(0u, begin);
      multiply(0u);
    }
  } else if (begin < chunks) {
    read(0u, begin);
    for (; begin + step < chunks; begin += 2u * step) {
      read(1u, begin + step);
      multiply(0u);
      if (begin + 2u * step < chunks) read(0u, begin + 2u * step);
      multiply(1u);
    }
    if (begin < chunks) multiply(0u);
  }
  [[unroll]] for (uint i = 0u; i < ROWS; ++i)
    [[unroll]] for (uint j = 0u; j < COLUMNS; ++j)
      coopMatStore(sums[i * COLUMNS + j], meeting, (share * TILE_P + tile_row + i * 16u) * ROW_Y + tile_column / 4u + j * 4u, ROW_Y,
                   gl_CooperativeMatrixLayoutRowMajor);
  barrier();  // the sums of all subgroups are there
  for (uint q = gl_LocalInvocationIndex; q < TILE_P * QUADS; q += INVOCATIONS) {
    const uint pixel = first_row + q / QUADS, quad = q % QUADS, channel = first_column + quad * 4u;
    if (pixel >= p.pixels || channel >= p.channels_out) continue;
    vec4 sum;
    for (uint j = 0u; j < 4u; ++j) sum[j] = channel_bias(channel + j);
    [[unroll]] for (uint k = 0u; k < SPLIT; ++k) sum += uintBitsToFloat(meeting[(k * TILE_P + q / QUADS) * ROW_Y + quad]);
    for (uint j = 0u; j < 4u; ++j) sum[j] += element_bias(pixel, channel + j);
    store_four(y_index(place_of(pixel)), channel, sum);
  }
}

// Convolution of few input channels on fp16 cooperative matrices in the layout of include/mma.glsl: K runs over all taps of all
// channels.
//
// See include/conv_gemm.glsl for the geometry. w: packed as [kernel_taps][channels_in][channels_out rounded up to 8]. Y_VEC8 with
// Y_VEC4: output channels are aligned vec8s of fp16.
// Workgroups are persistent: each processes several tiles of TILE_H x TILE_W pixels. A subgroup multiplies row tiles of 16 pixels by SUB_N
// output channels; ACROSS subgroups process the same row tiles for different channels.
//   load all weights as B fragments, kept in registers; compute the patch offsets of this lane's K steps (4 of each 16) once
//   for each tile of this workgroup:
//     store the prefetched patch (all channels) to shared memory; barrier; prefetch the next patch
//     for each row tile: for each 16 of K: gather A from the patch; acc += A B; then bias, epilogue, store
// K is padded to a multiple of 16; padded steps count as zero. Columns are assigned to channels so that a lane stores contiguous channels.
//
// Requires matrices in that layout, or their emulation (has_or_emulates_mma). Selected in conv_gemm_plan.cpp (make_few_channels_plan);
// few_channels_tiling.cpp chooses the tile.
#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#if !EMULATED
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#endif
#define GRID_AXES 0
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#include "include/conv_gemm.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint INVOCATIONS = 128u;
layout(constant_id = 1) const uint TILE_H = 4u;
layout(constant_id = 2) const uint TILE_W = 16u;   // a multiple of 16
layout(constant_id = 3) const uint SUB_N = 32u;    // 16, or a multiple of 32
layout(constant_id = 4) const uint ACROSS = 1u;    // subgroups that share pixels and split the output channels
layout(constant_id = 5) const uint CHANNELS = 1u;  // input channels
layout(constant_id = 6) const uint KERNEL_H = 3u;
layout(constant_id = 7) const uint KERNEL_W = 3u;
layout(constant_id = 8) const uint STEP_H = 1u;
layout(constant_id = 9) const uint STEP_W = 1u;
layout(constant_id = 10) const uint DILATION_H = 1u;
layout(constant_id = 11) const uint DILATION_W = 1u;
layout(constant_id = 12) const uint PITCH = 48u;       // row stride of the patch in elements
layout(constant_id = 13) const uint INTERLEAVED = 0u;  // 1: NHWC input, channels of a pixel are adjacent
#include "include/mma.glsl"

layout(binding = 0) readonly buffer X { XFP x[]; };
layout(binding = 1) readonly buffer W { uvec4 w[]; };
#if Y_VEC8
layout(binding = 2) writeonly buffer Y { uvec4 y[]; };
#elif Y_VEC4
layout(binding = 2) writeonly buffer Y { YFP4 y[]; };
#else
layout(binding = 2) buffer Y { YFP y[]; };
#endif
#include "include/store_vec4.glsl"
#include "include/unroll.glsl"

#if EMULATED
#define Element float
#else
#define Element float16_t
#endif

const uint K_SIZE = CHANNELS * KERNEL_H * KERNEL_W, STEPS = (K_SIZE + 15u) / 16u;
const uint PATCH_H = (TILE_H - 1u) * STEP_H + (KERNEL_H - 1u) * DILATION_H + 1u;
const uint PATCH_W = (TILE_W - 1u) * STEP_W + (KERNEL_W - 1u) * DILATION_W + 1u;
const uint PLANE = PATCH_H * PITCH, AREA = PATCH_H * PATCH_W, ITEMS = AREA * CHANNELS;
const uint LOADS = (ITEMS + INVOCATIONS - 1u) / INVOCATIONS;
const uint COLUMNS = SUB_N / 16u, PAIRS = (COLUMNS + 1u) / 2u;
const uint ROW_TILES_W = TILE_W / 16u, ROW_TILES = TILE_H * ROW_TILES_W, PIXEL_GROUPS = INVOCATIONS / kLanes / ACROSS;
const bool OFFSETS_IN_REGISTERS = STEPS <= 8u;  // whether patch offsets stay in registers; with more K steps the weights need the registers
shared Element patch_of_x[CHANNELS * PLANE];
shared uvec2 shared_offsets[OFFSETS_IN_REGISTERS ? 1u : STEPS * 4u];

Element prefetched[LOADS];  // prefetched patch of the next tile
// patch offsets of this lane's K steps (4 of each 16), relative to a pixel's first element
uvec2 lane_offsets[OFFSETS_IN_REGISTERS ? STEPS : 1u];
MATRIX_B_ARRAY(weights, STEPS * COLUMNS);
vec4 biases[COLUMNS];
ACCUMULATOR_ARRAY(sums, COLUMNS);

// Returns channel, row and column of patch element `item`; adjacent invocations read adjacent elements.
uvec3 patch_position(uint item) {
  const uint channel = INTERLEAVED != 0u ? item % CHANNELS : item / AREA, at = INTERLEAVED != 0u ? item / CHANNELS : item % AREA;
  return uvec3(channel, at / PATCH_W, at % PATCH_W);
}

// Returns batch item, first row and first column of a tile.
uvec3 tile_position(uint number, uint tiles_h, uint tiles_w) {
  const uint image = number / (tiles_h * tiles_w), rest = number - image * (tiles_h * tiles_w), row = rest / tiles_w;
  return uvec3(image, row * TILE_H, (rest - row * tiles_w) * TILE_W);
}

// Prefetches the patch of a tile, with zeros outside the input; branch-free, so that all loads are in flight at once.
void prefetch_patch(uvec3 tile) {
  const ivec2 corner = ivec2(tile.yz * uvec2(STEP_H, STEP_W)) + ivec2(p.base_h, p.base_w);
  const uint first = p.x_offset + tile.x * p.x_stride_n;
  FOR(i, LOADS) {
    const uint item = gl_LocalInvocationIndex + i * INVOCATIONS;
    const uvec3 position = patch_position(item);
    const ivec2 at = corner + ivec2(position.yz);
    const bool inside = item < ITEMS && uint(at.x) < uint(p.in_h) && uint(at.y) < uint(p.in_w);
    const uint from = first + uint(at.x) * p.x_stride_h + uint(at.y) * p.x_stride_w + x_channel(position.x);
    const float value = X_AT(inside ? from : p.x_offset);
    prefetched[i] = Element(inside ? value : 0.0);
  }
}

void store_patch() {
  FOR(i, LOADS) {
    const uint item = gl_LocalInvocationIndex + i * INVOCATIONS;
    const uvec3 position = patch_position(item);
    if (item < ITEMS) patch_of_x[position.x * PLANE + position.y * PITCH + position.z] = prefetched[i];
  }
}

// Returns the reduction index k of component i in K step s, for lanes with LANE % 4 == t. Taps of a row are fastest, then rows, then
// channels.
uint get_k_index(uint s, uint t, uint i) { return s * 16u + t * 4u + i; }

uvec2 compute_lane_offsets(uint s, uint t) {
  uvec4 at;
  [[unroll]] for (uint i = 0u; i < 4u; ++i) {
    const uint k_index = get_k_index(s, t, i), channel = k_index / (KERNEL_H * KERNEL_W), tap = k_index % (KERNEL_H * KERNEL_W);
    const uint offset = channel * PLANE + tap / KERNEL_W * (DILATION_H * PITCH) + tap % KERNEL_W * DILATION_W;
    at[i] = k_index < K_SIZE ? offset : 0u;
  }
  return at.xz | at.yw << 16;
}

void compute_offsets() {
  if (OFFSETS_IN_REGISTERS)
    FOR(s, STEPS) lane_offsets[OFFSETS_IN_REGISTERS ? s : 0u] = compute_lane_offsets(s, LANE % 4u);
  else if (gl_LocalInvocationIndex < STEPS * 4u)
    shared_offsets[OFFSETS_IN_REGISTERS ? 0u : gl_LocalInvocationIndex] = compute_lane_offsets(gl_LocalInvocationIndex / 4u, gl_LocalInvocationIndex % 4u);
}

// Column n = 2 t + e + 8 h maps to channel 8 t + 4 m + 2 h + e for fragment m of a pair, and to 4 t + 2 h + e for a single fragment, so
// that a lane has 8 or 4 adjacent channels.
uint output_channel(uint first, uint j) {
  return COLUMNS == 1u ? first + LANE % 4u * 4u : first + j / 2u * 32u + LANE % 4u * 8u + j % 2u * 4u;
}

// Combines the low or the high 16 bits of two words.
uint combine_halves(uint a, uint b, bool high) { return high ? a >> 16 | b & 0xffff0000u : a & 0xffffu | b << 16; }

void load_weights(uint first) {
  const uint num_vec8 = (p.channels_out + 7u) / 8u, t = LANE / 8u;
  const bool high = (LANE / 4u & 1u) != 0u;
  FOR(s, STEPS) FOR(pair, PAIRS) {
    uvec4 rows[4];
    const uint vec8_index = min(first / 8u + (COLUMNS == 1u ? t / 2u : pair * 4u + t), num_vec8 - 1u);
    [[unroll]] for (uint i = 0u; i < 4u; ++i) {
      const uint k_index = get_k_index(s, LANE % 4u, i), channel = k_index / (KERNEL_H * KERNEL_W), tap = k_index % (KERNEL_H * KERNEL_W);
      const uint row = tap_index(tap / KERNEL_W, tap % KERNEL_W) * CHANNELS + channel;
      rows[i] = k_index < K_SIZE ? w[(p.w_offset >> 3) + row * num_vec8 + vec8_index] : uvec4(0u);
      if (COLUMNS == 1u && t % 2u == 1u) rows[i].xy = rows[i].zw;
    }
    FOR(m, COLUMNS == 1u ? 1u : 2u) {
      uvec2 rows4[4];
      [[unroll]] for (uint i = 0u; i < 4u; ++i) rows4[i] = m == 0u ? rows[i].xy : rows[i].zw;
      SET_FRAGMENT(weights[s * COLUMNS + pair * 2u + m], UNPACK_OPERAND2(combine_halves(rows4[0].x, rows4[1].x, high)),
                     UNPACK_OPERAND2(combine_halves(rows4[2].x, rows4[3].x, high)), UNPACK_OPERAND2(combine_halves(rows4[0].y, rows4[1].y, high)),
                     UNPACK_OPERAND2(combine_halves(rows4[2].y, rows4[3].y, high)))
    }
  }
}

// Multiplies the row tile of 16 pixels whose patch elements start at `first`.
void multiply(uint first) {
  FOR(j, COLUMNS) CLEAR_ACCUMULATOR(sums[j]);
  FOR(s, STEPS) {
    const uvec2 offsets = OFFSETS_IN_REGISTERS ? lane_offsets[OFFSETS_IN_REGISTERS ? s : 0u] : shared_offsets[OFFSETS_IN_REGISTERS ? 0u : s * 4u + LANE % 4u];
    const uvec4 at = first + uvec4(offsets.x & 0xffffu, offsets.x >> 16, offsets.y & 0xffffu, offsets.y >> 16);
    Element line[4], other[4];  // elements of pixels LANE / 4 and LANE / 4 + 8
    [[unroll]] for (uint i = 0u; i < 4u; ++i) {
      line[i] = patch_of_x[at[i]], other[i] = patch_of_x[at[i] + 8u * STEP_W];
      if ((s + 1u) * 16u > K_SIZE && get_k_index(s, LANE % 4u, i) >= K_SIZE) line[i] = other[i] = Element(0.0);
    }
    MATRIX_A(left);
    SET_FRAGMENT(left, Operand2(line[0], line[1]), Operand2(line[2], line[3]), Operand2(other[0], other[1]), Operand2(other[2], other[3]))
    FOR(j, COLUMNS) MMA(left, weights[s * COLUMNS + j], sums[j]);
  }
}

#if Y_VEC8
uvec2 pack_fp16(vec4 v) {
  const f16vec4 fp16 = f16vec4(pm_round(v));
  return uvec2(packFloat2x16(fp16.xy), packFloat2x16(fp16.zw));
}
#endif

// Stores 4 output channels of a pixel (8 with Y_VEC8).
void store_channels(uint at, uint channel, vec4 sum, vec4 next) {
  if (channel >= p.channels_out) return;
#if Y_VEC8
  const uint index = at + y_channel(channel);
  y[index >> 3] = uvec4(pack_fp16(apply_epilogue(sum, index)), pack_fp16(apply_epilogue(next, index + 4u)));
#else
  store_vec4(at, channel, sum);
#endif
}

#define BIASED_VEC4(j, c) (ACC_VEC4(sums[j], c) + biases[j])

// Stores the outputs of a row tile of 16 pixels.
void store_row_tile(uvec3 row_tile, uint first_channel) {
  const uint vec4_per_store = Y_VEC8 == 1 ? 2u : 1u;
  FOR(half_index, 2u) {
    const uint column = row_tile.z + LANE / 4u + half_index * 8u, c = half_index * 4u;
    if (row_tile.y >= p.out_h || column >= p.out_w) continue;
    const uint at = y_index(uvec3(row_tile.xy, column));
    FOR(i, COLUMNS / vec4_per_store) {
      const uint j = i * vec4_per_store;
      store_channels(at, output_channel(first_channel, j), BIASED_VEC4(j, c), BIASED_VEC4(j + vec4_per_store - 1u, c));
    }
  }
}

void main() {
  const uint tiles_h = (p.out_h + TILE_H - 1u) / TILE_H, tiles_w = (p.out_w + TILE_W - 1u) / TILE_W;
  const uint tiles = p.pixels / (p.out_h * p.out_w) * tiles_h * tiles_w;
  const uint first_channel = (grid_group().y * ACROSS + SUBGROUP_ID % ACROSS) * SUB_N, pixel_group = SUBGROUP_ID / ACROSS;
  uint number = grid_group().x;
  uvec3 tile = tile_position(number, tiles_h, tiles_w);
  prefetch_patch(tile);
  compute_offsets();
  load_weights(first_channel);
  FOR(j, COLUMNS) {
    const uint channel = output_channel(first_channel, j);
    biases[j] = bias_vec4(channel);
  }
  while (true) {
    store_patch();
    barrier();
    const uint next = number + grid_size().x;
    const uvec3 next_tile = tile_position(next, tiles_h, tiles_w);
    if (next < tiles) prefetch_patch(next_tile);
    [[dont_unroll]] for (uint row_tile = pixel_group; row_tile < ROW_TILES; row_tile += PIXEL_GROUPS) {
      const uint row = row_tile / ROW_TILES_W, column = row_tile % ROW_TILES_W * 16u;
#if !EMULATED  // with EMULATED, all invocations must call multiply() together
      if (tile.y + row >= p.out_h || tile.z + column >= p.out_w) continue;
#endif
      multiply(row * (STEP_H * PITCH) + (column + LANE / 4u) * STEP_W);
      store_row_tile(uvec3(tile.x, tile.y + row, tile.z + column), first_channel);
    }
    if (next >= tiles) break;
    number = next, tile = next_tile;
    barrier();  // wait until no subgroup is still reading the patch
  }
}

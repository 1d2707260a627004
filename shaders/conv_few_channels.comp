// Convolution of few input channels on fp16 cooperative matrices in the layout of include/mma.glsl: K runs over all taps of all
// channels.
//
// See include/conv_gemm.glsl for the geometry. w: packed as [kernel_taps][channels_in][channels_out rounded up to 8]. Y_EIGHTS with
// Y_VEC4: output channels are aligned vec8s of fp16.
// Workgroups are persistent: each processes several tiles of TILE_H x TILE_W pixels. A subgroup multiplies strips of 16 pixels of a row by
// SUB_C output channels; ACROSS subgroups process the same strips for different channels.
//   load all weights as B fragments, kept in registers; compute the patch offsets of this lane's K steps (4 of each 16) once
//   for each tile of this workgroup:
//     store the prefetched patch (all channels) to shared memory; barrier; prefetch the next patch
//     for each strip: for each 16 of K: gather A from the patch; acc += A B; then bias, epilogue, store
// K is padded to a multiple of 16; padded steps count as zero. Columns are assigned to channels so that a lane stores contiguous channels.
//
// Requires has_fragments. Selected in conv_gemm_plan.cpp (taps_plan); few_channels_tiling.cpp chooses the tile.
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
layout(constant_id = 3) const uint SUB_C = 32u;    // 16, or a multiple of 32
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
#if Y_EIGHTS
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

const uint DEPTH = CHANNELS * KERNEL_H * KERNEL_W, STEPS = (DEPTH + 15u) / 16u;
const uint PATCH_H = (TILE_H - 1u) * STEP_H + (KERNEL_H - 1u) * DILATION_H + 1u;
const uint PATCH_W = (TILE_W - 1u) * STEP_W + (KERNEL_W - 1u) * DILATION_W + 1u;
const uint PLANE = PATCH_H * PITCH, AREA = PATCH_H * PATCH_W, ITEMS = AREA * CHANNELS;
const uint LOADS = (ITEMS + INVOCATIONS - 1u) / INVOCATIONS;
const uint COLUMNS = SUB_C / 16u, PAIRS = (COLUMNS + 1u) / 2u;
const uint STRIPS_W = TILE_W / 16u, STRIPS = TILE_H * STRIPS_W, SHARES = INVOCATIONS / kLanes / ACROSS;
const bool HOLDS_PLACES = STEPS <= 8u;  // whether patch offsets stay in registers; with more K steps the weights need the registers
shared Element patch_of_x[CHANNELS * PLANE];
shared uvec2 all_places[HOLDS_PLACES ? 1u : STEPS * 4u];

Element found[LOADS];                         // prefetched patch of the next tile
uvec2 own_places[HOLDS_PLACES ? STEPS : 1u];  // patch offsets of this lane's K steps (4 of each 16), relative to a pixel's first element
RIGHT_OF(weights, STEPS * COLUMNS);
vec4 biases[COLUMNS];
SUMS_OF(sums, COLUMNS);

// Returns channel, row and column of patch element `item`; adjacent invocations read adjacent elements.
uvec3 place_in_patch(uint item) {
  const uint channel = INTERLEAVED != 0u ? item % CHANNELS : item / AREA, at = INTERLEAVED != 0u ? item / CHANNELS : item % AREA;
  return uvec3(channel, at / PATCH_W, at % PATCH_W);
}

// Returns batch item, first row and first column of a tile.
uvec3 place_of_tile(uint number, uint tiles_h, uint tiles_w) {
  const uint image = number / (tiles_h * tiles_w), rest = number - image * (tiles_h * tiles_w), row = rest / tiles_w;
  return uvec3(image, row * TILE_H, (rest - row * tiles_w) * TILE_W);
}

// Prefetches the patch of a tile, with zeros outside the input; branch-free, so that all loads are in flight at once.
void fetch(uvec3 tile) {
  const ivec2 corner = ivec2(tile.yz * uvec2(STEP_H, STEP_W)) + ivec2(p.base_h, p.base_w);
  const uint first = p.x_offset + tile.x * p.x_stride_n;
  FOR(i, LOADS) {
    const uint item = gl_LocalInvocationIndex + i * INVOCATIONS;
    const uvec3 place = place_in_patch(item);
    const ivec2 at = corner + ivec2(place.yz);
    const bool inside = item < ITEMS && uint(at.x) < uint(p.in_h) && uint(at.y) < uint(p.in_w);
    const uint from = first + uint(at.x) * p.x_stride_h + uint(at.y) * p.x_stride_w + x_channel(place.x);
    const float one = X_AT(inside ? from : p.x_offset);
    found[i] = Element(inside ? one : 0.0);
  }
}

void put() {
  FOR(i, LOADS) {
    const uint item = gl_LocalInvocationIndex + i * INVOCATIONS;
    const uvec3 place = place_in_patch(item);
    if (item < ITEMS) patch_of_x[place.x * PLANE + place.y * PITCH + place.z] = found[i];
  }
}

// Returns the reduction index of component i of K step s, in lanes with LANE % 4 == t. Taps of a row are fastest, then rows, then channels.
uint depth_of(uint s, uint t, uint i) { return s * 16u + t * 4u + i; }

uvec2 places_of(uint s, uint t) {
  uvec4 at;
  [[unroll]] for (uint i = 0u; i < 4u; ++i) {
    const uint depth = depth_of(s, t, i), channel = depth / (KERNEL_H * KERNEL_W), tap = depth % (KERNEL_H * KERNEL_W);
    const uint place = channel * PLANE + tap / KERNEL_W * (DILATION_H * PITCH) + tap % KERNEL_W * DILATION_W;
    at[i] = depth < DEPTH ? place : 0u;
  }
  return at.xz | at.yw << 16;
}

void find_places() {
  if (HOLDS_PLACES)
    FOR(s, STEPS) own_places[HOLDS_PLACES ? s : 0u] = places_of(s, LANE % 4u);
  else if (gl_LocalInvocationIndex < STEPS * 4u)
    all_places[HOLDS_PLACES ? 0u : gl_LocalInvocationIndex] = places_of(gl_LocalInvocationIndex / 4u, gl_LocalInvocationIndex % 4u);
}

// Column n = 2 t + e + 8 h maps to channel 8 t + 4 m + 2 h + e for fragment m of a pair, and to 4 t + 2 h + e for a single fragment, so
// that a lane has 8 or 4 adjacent channels.
uint channel_of(uint first, uint j) {
  return COLUMNS == 1u ? first + LANE % 4u * 4u : first + j / 2u * 32u + LANE % 4u * 8u + j % 2u * 4u;
}

// Combines the low or the high 16 bits of two words.
uint halves_of(uint a, uint b, bool high) { return high ? a >> 16 | b & 0xffff0000u : a & 0xffffu | b << 16; }

void read_weights(uint first) {
  const uint eights = (p.channels_out + 7u) / 8u, t = LANE / 8u;
  const bool high = (LANE / 4u & 1u) != 0u;
  FOR(s, STEPS) FOR(pair, PAIRS) {
    uvec4 rows[4];
    const uint eight = min(first / 8u + (COLUMNS == 1u ? t / 2u : pair * 4u + t), eights - 1u);
    [[unroll]] for (uint i = 0u; i < 4u; ++i) {
      const uint depth = depth_of(s, LANE % 4u, i), channel = depth / (KERNEL_H * KERNEL_W), tap = depth % (KERNEL_H * KERNEL_W);
      const uint row = tap_index(tap / KERNEL_W, tap % KERNEL_W) * CHANNELS + channel;
      rows[i] = depth < DEPTH ? w[(p.w_offset >> 3) + row * eights + eight] : uvec4(0u);
      if (COLUMNS == 1u && t % 2u == 1u) rows[i].xy = rows[i].zw;
    }
    FOR(m, COLUMNS == 1u ? 1u : 2u) {
      uvec2 four[4];
      [[unroll]] for (uint i = 0u; i < 4u; ++i) four[i] = m == 0u ? rows[i].xy : rows[i].zw;
      SET_COMPONENTS(weights[s * COLUMNS + pair * 2u + m], PAIR(halves_of(four[0].x, four[1].x, high)),
                     PAIR(halves_of(four[2].x, four[3].x, high)), PAIR(halves_of(four[0].y, four[1].y, high)),
                     PAIR(halves_of(four[2].y, four[3].y, high)))
    }
  }
}

// Multiplies the strip of 16 pixels whose patch elements start at `first`.
void multiply(uint first) {
  FOR(j, COLUMNS) CLEAR_SUMS(sums[j]);
  FOR(s, STEPS) {
    const uvec2 held = HOLDS_PLACES ? own_places[HOLDS_PLACES ? s : 0u] : all_places[HOLDS_PLACES ? 0u : s * 4u + LANE % 4u];
    const uvec4 at = first + uvec4(held.x & 0xffffu, held.x >> 16, held.y & 0xffffu, held.y >> 16);
    Element line[4], other[4];  // elements of pixels LANE / 4 and LANE / 4 + 8
    [[unroll]] for (uint i = 0u; i < 4u; ++i) {
      line[i] = patch_of_x[at[i]], other[i] = patch_of_x[at[i] + 8u * STEP_W];
      if ((s + 1u) * 16u > DEPTH && depth_of(s, LANE % 4u, i) >= DEPTH) line[i] = other[i] = Element(0.0);
    }
    LEFT(left);
    SET_COMPONENTS(left, Pair(line[0], line[1]), Pair(line[2], line[3]), Pair(other[0], other[1]), Pair(other[2], other[3]))
    FOR(j, COLUMNS) MULTIPLY_ADD(left, weights[s * COLUMNS + j], sums[j]);
  }
}

#if Y_EIGHTS
uvec2 words_of(vec4 v) {
  const f16vec4 halves = f16vec4(pm_round(v));
  return uvec2(packFloat2x16(halves.xy), packFloat2x16(halves.zw));
}
#endif

// Stores 4 output channels of a pixel (8 with Y_EIGHTS).
void store(uint at, uint channel, vec4 sum, vec4 next) {
  if (channel >= p.channels_out) return;
#if Y_EIGHTS
  const uint place = at + y_channel(channel);
  y[place >> 3] = uvec4(words_of(finished(sum, place)), words_of(finished(next, place + 4u)));
#else
  store_four(at, channel, sum);
#endif
}

#define FOUR(j, c) (FOUR_SUMS(sums[j], c) + biases[j])

// Stores the outputs of a strip of 16 pixels.
void store_strip(uvec3 strip, uint first_channel) {
  const uint together = Y_EIGHTS == 1 ? 2u : 1u;
  FOR(part, 2u) {
    const uint column = strip.z + LANE / 4u + part * 8u, c = part * 4u;
    if (strip.y >= p.out_h || column >= p.out_w) continue;
    const uint at = y_index(uvec3(strip.xy, column));
    FOR(i, COLUMNS / together) {
      const uint j = i * together;
      store(at, channel_of(first_channel, j), FOUR(j, c), FOUR(j + together - 1u, c));
    }
  }
}

void main() {
  const uint tiles_h = (p.out_h + TILE_H - 1u) / TILE_H, tiles_w = (p.out_w + TILE_W - 1u) / TILE_W;
  const uint tiles = p.pixels / (p.out_h * p.out_w) * tiles_h * tiles_w;
  const uint first_channel = (grid_group().y * ACROSS + SUBGROUP_NUMBER % ACROSS) * SUB_C, share = SUBGROUP_NUMBER / ACROSS;
  uint number = grid_group().x;
  uvec3 tile = place_of_tile(number, tiles_h, tiles_w);
  fetch(tile);
  find_places();
  read_weights(first_channel);
  FOR(j, COLUMNS) {
    const uint channel = channel_of(first_channel, j);
    biases[j] = four_biases(channel);
  }
  while (true) {
    put();
    barrier();
    const uint next = number + grid_size().x;
    const uvec3 next_tile = place_of_tile(next, tiles_h, tiles_w);
    if (next < tiles) fetch(next_tile);
    [[dont_unroll]] for (uint number_of_strip = share; number_of_strip < STRIPS; number_of_strip += SHARES) {
      const uint row = number_of_strip / STRIPS_W, column = number_of_strip % STRIPS_W * 16u;
#if !EMULATED  // with EMULATED, all invocations must call multiply() together
      if (tile.y + row >= p.out_h || tile.z + column >= p.out_w) continue;
#endif
      multiply(row * (STEP_H * PITCH) + (column + LANE / 4u) * STEP_W);
      store_strip(uvec3(tile.x, tile.y + row, tile.z + column), first_channel);
    }
    if (next >= tiles) break;
    number = next, tile = next_tile;
    barrier();  // wait until no subgroup is still reading the patch
  }
}

// Convolution with several taps on fp16 cooperative matrices in the layout of include/mma.glsl. The input patch with its halo is
// loaded once per tile.
//
// x: channels in whole, aligned vec8s. w: packed by pack_weights.comp (FRAGMENTS) as [channels_out / 8][channels_in / 32][taps][32][8];
// SPREAD: [columns / 8] and [rows of taps]. y: see include/conv_gemm.glsl.
// Workgroup = TILE_H x TILE_W pixels of an image x TILE_C output channels; a subgroup computes SUB_P neighbouring pixels x SUB_C channels.
// SPLIT subgroups split K by kernel rows of 32 channels. Weights come from memory in fragment order, without a barrier.
//   for each PLANES * 32 input channels:
//     load the patch (tile + halo) to shared memory; barrier
//     for each kernel row and tap of this split:
//       load weights (EARLY: for the next tap); A fragments from the patch at the tap's offset; acc += A B
//   add bias; epilogue; store (SPLIT > 1: reduce in shared memory first)
// A lane holds channels LANE % 4 * 8 ... + 7 of 32, for pixels LANE / 4 and LANE / 4 + 8.
// SPREAD, for few output channels: the x taps of a kernel row are folded into N. TILE_W then counts input pixels, and the sums of
// neighbouring pixels are added in shared memory. Strides of 1 only.
//
// Requires has_fragments. Selected in conv_gemm_plan.cpp; halo_tiling.cpp chooses the tile.
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
#define X_VEC4 1
#include "include/conv_gemm.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint INVOCATIONS = 128u;  // a subgroup of 32 for each SUB_P x SUB_C
layout(constant_id = 1) const uint TILE_H = 8u;
layout(constant_id = 2) const uint TILE_W = 16u;  // a multiple of 8; divides SUB_P or is divided by it
layout(constant_id = 3) const uint TILE_C = 64u;
layout(constant_id = 4) const uint SUB_P = 64u;
layout(constant_id = 5) const uint SUB_C = 32u;
layout(constant_id = 6) const uint PLANES = 1u;
layout(constant_id = 7) const uint KERNEL_H = 3u;
layout(constant_id = 8) const uint KERNEL_W = 3u;
layout(constant_id = 9) const uint STEP_H = 1u;
layout(constant_id = 10) const uint STEP_W = 1u;
layout(constant_id = 11) const uint DILATION_H = 1u;
layout(constant_id = 12) const uint DILATION_W = 1u;
layout(constant_id = 13) const uint EARLY = 0u;  // 1: prefetch the next tap's weights
layout(constant_id = 14) const uint SPLIT = 1u;  // EMULATED: must divide the kernel rows of PLANES, and of the remainder
#include "include/mma.glsl"

layout(binding = 0) readonly buffer X { uvec4 x[]; };
layout(binding = 1) readonly buffer W { uvec4 w[]; };
#if Y_VEC4
layout(binding = 2) writeonly buffer Y { YFP4 y[]; };
#else
layout(binding = 2) buffer Y { YFP y[]; };
#endif
#include "include/store_vec4.glsl"
#include "include/unroll.glsl"

#if SPREAD
const uint ACROSS_W = 1u, WIDE = TILE_W - (KERNEL_W - 1u) * DILATION_W;  // taps per row that are not folded into N; output pixels per row
const uint PITCH = SUB_C + 1u;                                           // padded to avoid bank conflicts
#define COLUMNS_OUT (p.channels_out * KERNEL_W)
#else
const uint PITCH = SPLIT > 1u ? TILE_C + 4u : 0u;
#define ACROSS_W KERNEL_W  // macros, since new constants would rename the specialised ones
#define WIDE TILE_W
#define COLUMNS_OUT p.channels_out
#endif
const uint ROWS = SUB_P / 16u, COLUMNS = SUB_C / 16u, ACROSS = TILE_C / SUB_C;
const uint PATCH_H = (TILE_H - 1u) * STEP_H + (KERNEL_H - 1u) * DILATION_H + 1u;
const uint PATCH_W = (TILE_W - 1u) * STEP_W + (ACROSS_W - 1u) * DILATION_W + 1u;
const uint AREA = PATCH_H * PATCH_W, PLANE = (AREA | 1u) * 4u;  // odd number of pixels, to avoid bank conflicts between planes
const uint UNITS = AREA * PLANES * 4u, LOADS = (UNITS + INVOCATIONS - 1u) / INVOCATIONS;
const uint AT_ONCE = LOADS < 12u ? LOADS : 12u;  // number of loads that an invocation has in flight at once
const uint TAPS = KERNEL_H * ACROSS_W;                           // taps with separate MMAs
const uint PIXELS = TILE_H * TILE_W, TILES = PIXELS / SUB_P * ACROSS;  // TILES: number of subgroups per split
const uint WORDS_IN = PLANES * PLANE, WORDS_OUT = SPLIT * PIXELS * PITCH / 4u;
shared uvec4 patches[WORDS_IN > WORDS_OUT ? WORDS_IN : WORDS_OUT];  // [plane][row][column][4] vec8s of channels

SUMS_OF(sums, ROWS * COLUMNS);
uint columns[COLUMNS];         // offsets, in vec8s, of this lane's lines in w
uvec4 held_w[2u * COLUMNS];    // weights of a tap for 32 channels
uvec4 coming_w[2u * COLUMNS];  // EARLY: weights of the next tap

// Loads the patch of PLANES * 32 channels to shared memory; zero outside the input and past its channels. Adjacent invocations read
// adjacent channels.
void fetch(uint first_channel, uint first_x, ivec2 corner) {
  [[dont_unroll]] for (uint first = gl_LocalInvocationIndex; first < UNITS; first += INVOCATIONS * AT_ONCE) {
    uvec4 found[AT_ONCE];
    FOR(i, AT_ONCE) {
      const uint unit = first + i * INVOCATIONS, pixel = unit / (PLANES * 4u), channel = first_channel + unit % (PLANES * 4u) * 8u;
      const ivec2 place = corner + ivec2(int(pixel / PATCH_W), int(pixel % PATCH_W));
      const bool inside = unit < UNITS && channel < p.channels_in && uint(place.x) < uint(p.in_h) && uint(place.y) < uint(p.in_w);
      const uint from = first_x + uint(place.x) * p.x_stride_h + uint(place.y) * p.x_stride_w + x_channel(channel);
      const uvec4 eight = x[(inside ? from : first_x) >> 3];
      found[i] = inside ? eight : uvec4(0u);
    }
    FOR(i, AT_ONCE) {
      const uint unit = first + i * INVOCATIONS, pixel = unit / (PLANES * 4u), part = unit % (PLANES * 4u);
      if (unit < UNITS) patches[part / 4u * PLANE + pixel * 4u + part % 4u] = found[i];
    }
  }
}

// Offset in shared memory of pixel line i, relative to the subgroup's first line.
uint line_at(uint i) { return (i * 8u / TILE_W * STEP_H * PATCH_W + i * 8u % TILE_W * STEP_W) * 4u; }

// Loads the weights of a tap at vec8 offset `at`. Columns are interleaved so that an invocation accumulates four adjacent channels.
#define READ_WEIGHTS(held, at) FOR(i, 2u * COLUMNS) held[i] = w[columns[i / 2u] + (at) + i % 2u * 8u]

#define SET_LINES(matrix, line, other, part)                                                    \
  {                                                                                             \
    const uvec2 low = (part) == 0u ? line.xy : line.zw, high = (part) == 0u ? other.xy : other.zw; \
    SET_COMPONENTS(matrix, PAIR(low.x), PAIR(low.y), PAIR(high.x), PAIR(high.y))                \
  }

// Accumulates one filter tap; the pixels it reads start at offset `at` in shared memory.
void multiply(uint at) {
  RIGHT_OF(right, 2u * COLUMNS);
  FOR(j, COLUMNS) FOR(part, 2u) SET_LINES(right[j * 2u + part], held_w[j * 2u], held_w[j * 2u + 1u], part)
  FOR(i, ROWS) {
    const uvec4 line = patches[at + line_at(i * 2u)], other = patches[at + line_at(i * 2u + 1u)];
    FOR(part, 2u) {
      LEFT(left);
      SET_LINES(left, line, other, part)
      FOR(j, COLUMNS) MULTIPLY_ADD(left, right[j * 2u + part], sums[i * COLUMNS + j]);
    }
  }
}

#if SPREAD
// Accumulators of the tile as floats: [row][column][PITCH].
#define MEETING(number, column) patches[((number) * PITCH + (column)) / 4u][((number) * PITCH + (column)) % 4u]

// Adds the folded x taps, one invocation per output pixel, and stores the outputs.
void store_sums(uvec3 corner, uint first_pixel, uint first_channel) {
  barrier();  // wait until no subgroup is still reading the patches; accumulators reuse the memory
  FOR(i, 2u * ROWS) FOR(j, COLUMNS) FOR(k, 4u)
    MEETING(first_pixel + i * 8u + LANE / 4u, j * 16u + LANE % 4u * 4u + k) =
        floatBitsToUint(sums[i / 2u * COLUMNS + j][i % 2u * 4u + k]);
  barrier();
  [[dont_unroll]] for (uint item = gl_LocalInvocationIndex; item < TILE_H * WIDE; item += INVOCATIONS) {
    const uint row = item / WIDE, column = item % WIDE;
    const uvec3 pixel = corner + uvec3(0u, row, column);
    if (pixel.y >= p.out_h || pixel.z >= p.out_w) continue;
    [[dont_unroll]] for (uint channel = 0u; channel < p.channels_out; channel += 4u) {
      vec4 sum;
      FOR(k, 4u) {
        const uint own = min(channel + k, p.channels_out - 1u);
        sum[k] = channel_bias(own);
        FOR(tw, KERNEL_W) sum[k] += uintBitsToFloat(MEETING(row * TILE_W + column + tw * DILATION_W, tw * p.channels_out + own));
      }
      store_four(y_index(pixel), channel, sum);
    }
  }
}
#else
// Reduces over SPLIT and stores the outputs.
void store_shares(uvec3 corner, uint first_pixel, uint first_column) {
  const uint quads = TILE_C / 4u, first = SUBGROUP_NUMBER / TILES * PIXELS + first_pixel;
  barrier();  // wait until no subgroup is still reading the patches; accumulators reuse the memory
  FOR(i, 2u * ROWS) FOR(j, COLUMNS)
    patches[((first + i * 8u + LANE / 4u) * PITCH + first_column + j * 16u) / 4u + LANE % 4u] =
        floatBitsToUint(FOUR_SUMS(sums[i / 2u * COLUMNS + j], i % 2u * 4u));
  barrier();
  [[dont_unroll]] for (uint item = gl_LocalInvocationIndex; item < PIXELS * quads; item += INVOCATIONS) {
    const uint number = item / quads, quad = item % quads, channel = grid_group().y * TILE_C + quad * 4u;
    const uvec3 pixel = corner + uvec3(0u, number / TILE_W, number % TILE_W);
    if (pixel.y >= p.out_h || pixel.z >= p.out_w || channel >= p.channels_out) continue;
    vec4 sum = four_biases(channel);
    FOR(k, SPLIT) sum += uintBitsToFloat(patches[(k * PIXELS + number) * PITCH / 4u + quad]);
    store_four(y_index(pixel), channel, sum);
  }
}

// Stores this lane's accumulators, four adjacent channels per fragment and line. They are copied out of the matrices before any branch;
// otherwise one driver keeps all matrices in local memory.
void store_sums(uvec3 corner, uint first_pixel, uint first_channel) {
  vec4 made[2u * ROWS * COLUMNS];
  FOR(i, ROWS) FOR(part, 2u) FOR(j, COLUMNS) made[(i * 2u + part) * COLUMNS + j] = FOUR_SUMS(sums[i * COLUMNS + j], part * 4u);
  FOR(i, 2u * ROWS) {
    const uint number = first_pixel + i * 8u + LANE / 4u;
    const uvec3 pixel = corner + uvec3(0u, number / TILE_W, number % TILE_W);
    FOR(j, COLUMNS) {
      const uint channel = first_channel + j * 16u + LANE % 4u * 4u;
      if (pixel.y < p.out_h && pixel.z < p.out_w && channel < p.channels_out)
        store_four(y_index(pixel), channel, four_biases(channel) + made[i * COLUMNS + j]);
    }
  }
}
#endif

void main() {
  const uint tiles_w = (p.out_w + WIDE - 1u) / WIDE, tiles_h = (p.out_h + TILE_H - 1u) / TILE_H;
  const uint image = grid_group().x / (tiles_w * tiles_h), number = grid_group().x - image * (tiles_w * tiles_h);
  const uvec3 corner = uvec3(image, number / tiles_w * TILE_H, number % tiles_w * WIDE);
  const ivec2 corner_x = ivec2(corner.y * STEP_H, corner.z * STEP_W) + ivec2(p.base_h, p.base_w);
  const uint first_x = p.x_offset + image * p.x_stride_n;
  const uint share = SUBGROUP_NUMBER / TILES, tile = SUBGROUP_NUMBER % TILES;
  const uint pixel = tile / ACROSS * SUB_P, column = tile % ACROSS * SUB_C, channel = grid_group().y * TILE_C + column;
  const uint line = LANE / 4u, eight = LANE % 4u;
  const uint blocks = (COLUMNS_OUT + 7u) / 8u, planes = (p.channels_in + 31u) / 32u, last = (planes * TAPS - 1u) * kLanes;
  const uint line_w = (line / 2u % 2u * 4u + line % 2u) * 4u + eight;
  FOR(j, COLUMNS) {
    const uint block = min(channel / 8u + j * 2u + line / 4u, blocks - 1u);
    columns[j] = (p.w_offset >> 3) + block * planes * TAPS * kLanes + line_w;
  }
  FOR(i, ROWS * COLUMNS) CLEAR_SUMS(sums[i]);
  const uint first_line = (pixel / TILE_W * STEP_H * PATCH_W + (pixel % TILE_W + line) * STEP_W) * 4u + eight;
  if (EARLY == 1u) READ_WEIGHTS(coming_w, min(share * ACROSS_W * kLanes, last));
  [[dont_unroll]] for (uint plane = 0u; plane < planes; plane += PLANES) {
    if (plane > 0u) barrier();  // wait until no invocation is still reading the previous patches
    fetch(plane * 32u, first_x, corner_x);
    barrier();
    const uint rows = min(PLANES, planes - plane) * KERNEL_H;  // number of kernel rows
    [[dont_unroll]] for (uint row = share; row < rows; row += SPLIT) {
      const uint at = row / KERNEL_H * PLANE + first_line + row % KERNEL_H * DILATION_H * PATCH_W * 4u;
      const uint at_w = (plane * TAPS + row * ACROSS_W) * kLanes;
      const uint next_row = row + SPLIT < rows ? row + SPLIT : PLANES * KERNEL_H + share;
      FOR(tw, ACROSS_W) {
        if (EARLY == 1u) {
          FOR(i, 2u * COLUMNS) held_w[i] = coming_w[i];
          const uint next = tw + 1u < ACROSS_W ? at_w + (tw + 1u) * kLanes : (plane * TAPS + next_row * ACROSS_W) * kLanes;
          READ_WEIGHTS(coming_w, min(next, last));
        } else {
          READ_WEIGHTS(held_w, at_w + tw * kLanes);
        }
        multiply(at + tw * DILATION_W * 4u);
      }
    }
  }
#if !SPREAD
  if (SPLIT > 1u) {
    store_shares(corner, pixel, column);
    return;
  }
#endif
  store_sums(corner, pixel, channel);
}

// Convolution with several taps on fp16 cooperative matrices in the layout of include/mma.glsl. The input patch with its halo is
// loaded once per tile.
//
// x: channels in whole, aligned vec8s. w: packed by pack_weights.comp (FRAGMENTS) as [channels_out / 8][channels_in / 32][taps][32][8];
// with FOLD_TAPS as [columns / 8][channels_in / 32][kernel rows][32][8]. y: see include/conv_gemm.glsl.
// Workgroup = TILE_H x TILE_W pixels of an image x TILE_N output channels; a subgroup computes SUB_M neighbouring pixels x SUB_N channels.
// SPLIT subgroups split K by kernel rows of 32 channels. Weights come from memory in fragment order, without a barrier.
//   for each PLANES * 32 input channels:
//     load the patch (tile + halo) to shared memory; barrier
//     for each kernel row and tap of this split:
//       load weights (PREFETCH: for the next tap); A fragments from the patch at the tap's offset; acc += A B
//   add bias; epilogue; store (SPLIT > 1: reduce in shared memory first)
// A lane holds channels LANE % 4 * 8 to LANE % 4 * 8 + 7 of 32, for pixels LANE / 4 and LANE / 4 + 8.
// FOLD_TAPS, for few output channels: the x taps of a kernel row are folded into N. TILE_W then counts input pixels, and the sums of
// neighbouring pixels are added in shared memory. Strides of 1 only.
//
// Requires matrices in that layout, or their emulation (has_or_emulates_mma). Selected in conv_gemm_plan.cpp; halo_tiling.cpp chooses the
// tile.
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
layout(constant_id = 0) const uint INVOCATIONS = 128u;  // one subgroup of 32 per SUB_M x SUB_N tile
layout(constant_id = 1) const uint TILE_H = 8u;
layout(constant_id = 2) const uint TILE_W = 16u;  // a multiple of 8; divides SUB_M or is divided by it
layout(constant_id = 3) const uint TILE_N = 64u;
layout(constant_id = 4) const uint SUB_M = 64u;
layout(constant_id = 5) const uint SUB_N = 32u;
layout(constant_id = 6) const uint PLANES = 1u;
layout(constant_id = 7) const uint KERNEL_H = 3u;
layout(constant_id = 8) const uint KERNEL_W = 3u;
layout(constant_id = 9) const uint STEP_H = 1u;
layout(constant_id = 10) const uint STEP_W = 1u;
layout(constant_id = 11) const uint DILATION_H = 1u;
layout(constant_id = 12) const uint DILATION_W = 1u;
layout(constant_id = 13) const uint PREFETCH = 0u;  // 1: prefetch the next tap's weights
layout(constant_id = 14) const uint SPLIT = 1u;  // EMULATED: divides the number of kernel rows of PLANES planes, and of the remaining planes
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

#if FOLD_TAPS
// taps per row that are not folded into N; output pixels per row
const uint UNFOLDED_TAPS = 1u, OUTPUT_W = TILE_W - (KERNEL_W - 1u) * DILATION_W;
const uint PITCH = SUB_N + 1u;  // padded to avoid bank conflicts
#define N_SIZE (p.channels_out * KERNEL_W)
#else
const uint PITCH = SPLIT > 1u ? TILE_N + 4u : 0u;
#define UNFOLDED_TAPS KERNEL_W  // macros, because new constants would renumber the specialisation constants
#define OUTPUT_W TILE_W
#define N_SIZE p.channels_out
#endif
const uint ROWS = SUB_M / 16u, COLUMNS = SUB_N / 16u, ACROSS = TILE_N / SUB_N;
const uint PATCH_H = (TILE_H - 1u) * STEP_H + (KERNEL_H - 1u) * DILATION_H + 1u;
const uint PATCH_W = (TILE_W - 1u) * STEP_W + (UNFOLDED_TAPS - 1u) * DILATION_W + 1u;
const uint AREA = PATCH_H * PATCH_W, PLANE = (AREA | 1u) * 4u;  // odd number of pixels, to avoid bank conflicts between planes
const uint PATCH_VEC8 = AREA * PLANES * 4u, LOADS = (PATCH_VEC8 + INVOCATIONS - 1u) / INVOCATIONS;
const uint IN_FLIGHT = LOADS < 12u ? LOADS : 12u;  // loads that an invocation has in flight at once
const uint TAPS = KERNEL_H * UNFOLDED_TAPS;                           // taps with separate MMAs
const uint PIXELS = TILE_H * TILE_W, TILES = PIXELS / SUB_M * ACROSS;  // TILES: number of subgroups per split
const uint OPERAND_WORDS = PLANES * PLANE, OUTPUT_WORDS = SPLIT * PIXELS * PITCH / 4u;
shared uvec4 patches[OPERAND_WORDS > OUTPUT_WORDS ? OPERAND_WORDS : OUTPUT_WORDS];  // [plane][row][column][4] vec8s of channels

ACCUMULATOR_ARRAY(sums, ROWS * COLUMNS);
uint columns[COLUMNS];            // offsets of this lane's columns of w, in vec8s
uvec4 regs_w[2u * COLUMNS];       // weights of a tap for 32 channels
uvec4 next_regs_w[2u * COLUMNS];  // PREFETCH: weights of the next tap

// Loads the patch of PLANES * 32 channels to shared memory; zero outside the input and past its channels. Adjacent invocations read
// adjacent channels.
void load_patch(uint first_channel, uint first_x, ivec2 corner) {
  [[dont_unroll]] for (uint first = gl_LocalInvocationIndex; first < PATCH_VEC8; first += INVOCATIONS * IN_FLIGHT) {
    uvec4 loaded[IN_FLIGHT];
    FOR(i, IN_FLIGHT) {
      const uint unit = first + i * INVOCATIONS, pixel = unit / (PLANES * 4u), channel = first_channel + unit % (PLANES * 4u) * 8u;
      const ivec2 position = corner + ivec2(int(pixel / PATCH_W), int(pixel % PATCH_W));
      const bool inside = unit < PATCH_VEC8 && channel < p.channels_in && uint(position.x) < uint(p.in_h) && uint(position.y) < uint(p.in_w);
      const uint from = first_x + uint(position.x) * p.x_stride_h + uint(position.y) * p.x_stride_w + x_channel(channel);
      const uvec4 value8 = x[(inside ? from : first_x) >> 3];
      loaded[i] = inside ? value8 : uvec4(0u);
    }
    FOR(i, IN_FLIGHT) {
      const uint unit = first + i * INVOCATIONS, pixel = unit / (PLANES * 4u), plane_vec8 = unit % (PLANES * 4u);
      if (unit < PATCH_VEC8) patches[plane_vec8 / 4u * PLANE + pixel * 4u + plane_vec8 % 4u] = loaded[i];
    }
  }
}

// Offset in shared memory of line i (8 pixels), relative to the subgroup's first line.
uint line_offset(uint i) { return (i * 8u / TILE_W * STEP_H * PATCH_W + i * 8u % TILE_W * STEP_W) * 4u; }

// Loads the weights of a tap at vec8 offset `at`. Columns are interleaved so that an invocation accumulates four adjacent channels.
#define LOAD_WEIGHTS(regs, at) FOR(i, 2u * COLUMNS) regs[i] = w[columns[i / 2u] + (at) + i % 2u * 8u]

#define SET_FRAGMENT_LINES(matrix, line, other, half_index)                                                    \
  {                                                                                             \
    const uvec2 low = (half_index) == 0u ? line.xy : line.zw, high = (half_index) == 0u ? other.xy : other.zw; \
    SET_FRAGMENT(matrix, UNPACK_OPERAND2(low.x), UNPACK_OPERAND2(low.y), UNPACK_OPERAND2(high.x), UNPACK_OPERAND2(high.y))                \
  }

// Accumulates one filter tap, whose pixels start at offset `at` in shared memory.
void multiply(uint at) {
  MATRIX_B_ARRAY(right, 2u * COLUMNS);
  FOR(j, COLUMNS) FOR(half_index, 2u) SET_FRAGMENT_LINES(right[j * 2u + half_index], regs_w[j * 2u], regs_w[j * 2u + 1u], half_index)
  FOR(i, ROWS) {
    const uvec4 line = patches[at + line_offset(i * 2u)], other = patches[at + line_offset(i * 2u + 1u)];
    FOR(half_index, 2u) {
      MATRIX_A(left);
      SET_FRAGMENT_LINES(left, line, other, half_index)
      FOR(j, COLUMNS) MMA(left, right[j * 2u + half_index], sums[i * COLUMNS + j]);
    }
  }
}

#if FOLD_TAPS
// Accumulators of the tile as floats: [row][column][PITCH].
#define STAGED_SUM(number, column) patches[((number) * PITCH + (column)) / 4u][((number) * PITCH + (column)) % 4u]

// Adds the folded x taps, one invocation per output pixel, and stores the outputs.
void store_sums(uvec3 corner, uint first_pixel, uint first_channel) {
  barrier();  // wait until no subgroup is still reading the patches; accumulators reuse the memory
  FOR(i, 2u * ROWS) FOR(j, COLUMNS) FOR(k, 4u)
    STAGED_SUM(first_pixel + i * 8u + LANE / 4u, j * 16u + LANE % 4u * 4u + k) =
        floatBitsToUint(sums[i / 2u * COLUMNS + j][i % 2u * 4u + k]);
  barrier();
  [[dont_unroll]] for (uint item = gl_LocalInvocationIndex; item < TILE_H * OUTPUT_W; item += INVOCATIONS) {
    const uint row = item / OUTPUT_W, column = item % OUTPUT_W;
    const uvec3 pixel = corner + uvec3(0u, row, column);
    if (pixel.y >= p.out_h || pixel.z >= p.out_w) continue;
    [[dont_unroll]] for (uint channel = 0u; channel < p.channels_out; channel += 4u) {
      vec4 sum;
      FOR(k, 4u) {
        const uint output_channel = min(channel + k, p.channels_out - 1u);
        sum[k] = channel_bias(output_channel);
        FOR(tw, KERNEL_W) sum[k] += uintBitsToFloat(STAGED_SUM(row * TILE_W + column + tw * DILATION_W, tw * p.channels_out + output_channel));
      }
      store_vec4(y_index(pixel), channel, sum);
    }
  }
}
#else
// Reduces over SPLIT and stores the outputs.
void reduce_and_store(uvec3 corner, uint first_pixel, uint first_column) {
  const uint num_vec4 = TILE_N / 4u, first = SUBGROUP_ID / TILES * PIXELS + first_pixel;
  barrier();  // wait until no subgroup is still reading the patches; accumulators reuse the memory
  FOR(i, 2u * ROWS) FOR(j, COLUMNS)
    patches[((first + i * 8u + LANE / 4u) * PITCH + first_column + j * 16u) / 4u + LANE % 4u] =
        floatBitsToUint(ACC_VEC4(sums[i / 2u * COLUMNS + j], i % 2u * 4u));
  barrier();
  [[dont_unroll]] for (uint item = gl_LocalInvocationIndex; item < PIXELS * num_vec4; item += INVOCATIONS) {
    const uint number = item / num_vec4, vec4_index = item % num_vec4, channel = grid_group().y * TILE_N + vec4_index * 4u;
    const uvec3 pixel = corner + uvec3(0u, number / TILE_W, number % TILE_W);
    if (pixel.y >= p.out_h || pixel.z >= p.out_w || channel >= p.channels_out) continue;
    vec4 sum = bias_vec4(channel);
    FOR(k, SPLIT) sum += uintBitsToFloat(patches[(k * PIXELS + number) * PITCH / 4u + vec4_index]);
    store_vec4(y_index(pixel), channel, sum);
  }
}

// Stores this lane's accumulators, four adjacent channels per fragment and line. They are copied out of the matrices before any branch;
// otherwise one driver keeps all matrices in local memory.
void store_sums(uvec3 corner, uint first_pixel, uint first_channel) {
  vec4 staged[2u * ROWS * COLUMNS];
  FOR(i, ROWS) FOR(half_index, 2u) FOR(j, COLUMNS) staged[(i * 2u + half_index) * COLUMNS + j] = ACC_VEC4(sums[i * COLUMNS + j], half_index * 4u);
  FOR(i, 2u * ROWS) {
    const uint number = first_pixel + i * 8u + LANE / 4u;
    const uvec3 pixel = corner + uvec3(0u, number / TILE_W, number % TILE_W);
    FOR(j, COLUMNS) {
      const uint channel = first_channel + j * 16u + LANE % 4u * 4u;
      if (pixel.y < p.out_h && pixel.z < p.out_w && channel < p.channels_out)
        store_vec4(y_index(pixel), channel, bias_vec4(channel) + staged[i * COLUMNS + j]);
    }
  }
}
#endif

void main() {
  const uint tiles_w = (p.out_w + OUTPUT_W - 1u) / OUTPUT_W, tiles_h = (p.out_h + TILE_H - 1u) / TILE_H;
  const uint image = grid_group().x / (tiles_w * tiles_h), number = grid_group().x - image * (tiles_w * tiles_h);
  const uvec3 corner = uvec3(image, number / tiles_w * TILE_H, number % tiles_w * OUTPUT_W);
  const ivec2 corner_x = ivec2(corner.y * STEP_H, corner.z * STEP_W) + ivec2(p.base_h, p.base_w);
  const uint first_x = p.x_offset + image * p.x_stride_n;
  const uint split = SUBGROUP_ID / TILES, tile = SUBGROUP_ID % TILES;
  const uint pixel = tile / ACROSS * SUB_M, column = tile % ACROSS * SUB_N, channel = grid_group().y * TILE_N + column;
  const uint line = LANE / 4u, value8 = LANE % 4u;
  const uint blocks = (N_SIZE + 7u) / 8u, planes = (p.channels_in + 31u) / 32u, last = (planes * TAPS - 1u) * kLanes;
  const uint line_w = (line / 2u % 2u * 4u + line % 2u) * 4u + value8;
  FOR(j, COLUMNS) {
    const uint block = min(channel / 8u + j * 2u + line / 4u, blocks - 1u);
    columns[j] = (p.w_offset >> 3) + block * planes * TAPS * kLanes + line_w;
  }
  FOR(i, ROWS * COLUMNS) CLEAR_ACCUMULATOR(sums[i]);
  const uint first_line = (pixel / TILE_W * STEP_H * PATCH_W + (pixel % TILE_W + line) * STEP_W) * 4u + value8;
  if (PREFETCH == 1u) LOAD_WEIGHTS(next_regs_w, min(split * UNFOLDED_TAPS * kLanes, last));
  [[dont_unroll]] for (uint plane = 0u; plane < planes; plane += PLANES) {
    if (plane > 0u) barrier();  // wait until no invocation is still reading the previous patches
    load_patch(plane * 32u, first_x, corner_x);
    barrier();
    const uint rows = min(PLANES, planes - plane) * KERNEL_H;  // number of kernel rows
    [[dont_unroll]] for (uint row = split; row < rows; row += SPLIT) {
      const uint at = row / KERNEL_H * PLANE + first_line + row % KERNEL_H * DILATION_H * PATCH_W * 4u;
      const uint at_w = (plane * TAPS + row * UNFOLDED_TAPS) * kLanes;
      const uint next_row = row + SPLIT < rows ? row + SPLIT : PLANES * KERNEL_H + split;
      FOR(tw, UNFOLDED_TAPS) {
        if (PREFETCH == 1u) {
          FOR(i, 2u * COLUMNS) regs_w[i] = next_regs_w[i];
          const uint next = tw + 1u < UNFOLDED_TAPS ? at_w + (tw + 1u) * kLanes : (plane * TAPS + next_row * UNFOLDED_TAPS) * kLanes;
          LOAD_WEIGHTS(next_regs_w, min(next, last));
        } else {
          LOAD_WEIGHTS(regs_w, at_w + tw * kLanes);
        }
        multiply(at + tw * DILATION_W * 4u);
      }
    }
  }
#if !FOLD_TAPS
  if (SPLIT > 1u) {
    reduce_and_store(corner, pixel, column);
    return;
  }
#endif
  store_sums(corner, pixel, channel);
}

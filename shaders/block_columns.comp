// Products of a few rows with a matrix in blocks, for devices with subgroups: see include/blocks.glsl. They are bound by the reading of w.
// A workgroup of SPLIT subgroups computes COLUMNS columns of all ROWS rows: neighbouring invocations read neighbouring 16 bytes of each
// column, AHEAD of them on their way at once, and the same elements of x serve all columns. Sums meet by exchange, then in shared memory.
// The block is a multiple of what 16 bytes of w hold, and x is read in eights.
#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/epilogue.glsl"
#include "include/tensor.glsl"
#if PM_GRAIN == 2
#define X_ELEMENT uvec4  // eight elements
#else
#define X_ELEMENT vec4
#endif
#define W_ELEMENT uvec4
#include "include/blocks.glsl"

layout(local_size_x_id = 1) in;
layout(constant_id = 1) const uint INVOCATIONS = 128u;  // SUBGROUP * SPLIT
layout(constant_id = 2) const uint SPLIT = 4u;
layout(constant_id = 3) const uint AHEAD = 1u;

const uint COLUMNS = 4u;
const uint CHUNK = 4u * IN_WORD;  // elements of 16 bytes of w
const uint EIGHTS = CHUNK / 8u;

shared float parts[SPLIT * ROWS * COLUMNS];

// Eight elements of x from an offset on that is a multiple of four, of halves a multiple of eight.
void load_eight(uint offset, out vec4 low, out vec4 high) {
#if PM_GRAIN == 2
  const uvec4 words = x[offset / 8u];
  low = vec4(pm_unpack_halves(words.x), pm_unpack_halves(words.y));
  high = vec4(pm_unpack_halves(words.z), pm_unpack_halves(words.w));
#else
  low = x[offset / 4u];
  high = x[offset / 4u + 1u];
#endif
}

// Element k of a chunk, less its zero point. Its bits are those of a float above 2^23, of which a power of two and one multiple of it are
// taken, both exactly: the conversion of integers is slower on GPUs.
float element_of(uvec4 chunk, uint k, float zero) {
  const uint word = chunk[k / IN_WORD], bit = k % IN_WORD * BITS, at = bit % 16u;
  const uint bits = (bit < 16u ? word : word >> 16) & (((1u << BITS) - 1u) << at);
  return fma(uintBitsToFloat(bits | 0x4b000000u), 1.0 / float(1u << at), -(float(8388608u >> at) + zero));
}

void main() {
  const uint lane = gl_LocalInvocationIndex, first_column = grid_group() * COLUMNS;
  const uint chunks = p.depth / CHUNK, first_w = p.w_offset / CHUNK;
  float sums[ROWS * COLUMNS];
  [[unroll]] for (uint i = 0u; i < ROWS * COLUMNS; ++i) sums[i] = 0.0;
  for (uint begin = lane; begin < chunks; begin += INVOCATIONS * AHEAD) {
    // There is no branch, so that all loads are on their way at once: past the end the last chunk is read and counts as zero.
    uvec4 held[AHEAD * COLUMNS];
    float units[AHEAD * COLUMNS], zeros[AHEAD * COLUMNS];
    [[unroll]] for (uint a = 0u; a < AHEAD; ++a) {
      const uint at = min(begin + a * INVOCATIONS, chunks - 1u), block = at * CHUNK / p.block;
      [[unroll]] for (uint c = 0u; c < COLUMNS; ++c) {
        const uint column = min(first_column + c, p.columns - 1u);
        held[a * COLUMNS + c] = w[first_w + column * chunks + at];
        units[a * COLUMNS + c] = scale[column * p.blocks + block];
        zeros[a * COLUMNS + c] = zero_point(column * p.blocks + block);
      }
    }
    [[unroll]] for (uint a = 0u; a < AHEAD; ++a) {
      const uint at = min(begin + a * INVOCATIONS, chunks - 1u);
      const bool deep = begin + a * INVOCATIONS < chunks;
      float products[ROWS * COLUMNS];
      [[unroll]] for (uint i = 0u; i < ROWS * COLUMNS; ++i) products[i] = 0.0;
      [[unroll]] for (uint e = 0u; e < EIGHTS; ++e)
        [[unroll]] for (uint row = 0u; row < ROWS; ++row) {
          vec4 low, high;
          load_eight(p.x_offset + row * p.depth + at * CHUNK + e * 8u, low, high);
          [[unroll]] for (uint c = 0u; c < COLUMNS; ++c)
            [[unroll]] for (uint k = 0u; k < 8u; ++k) {
              const float v = element_of(held[a * COLUMNS + c] SIGN_BITS, e * 8u + k, zeros[a * COLUMNS + c] + SIGN_ZERO);
              products[row * COLUMNS + c] = fma(k < 4u ? low[k & 3u] : high[k & 3u], v, products[row * COLUMNS + c]);
            }
        }
      [[unroll]] for (uint i = 0u; i < ROWS * COLUMNS; ++i)
        sums[i] += deep ? products[i] * units[a * COLUMNS + i % COLUMNS] : 0.0;
    }
  }
  [[unroll]] for (uint i = 0u; i < ROWS * COLUMNS; ++i) {
    [[unroll]] for (uint mask = 1u; mask < SUBGROUP; mask <<= 1) sums[i] += subgroupShuffleXor(sums[i], mask);
    if (gl_SubgroupInvocationID == 0u) parts[gl_SubgroupID * (ROWS * COLUMNS) + i] = sums[i];
  }
  barrier();  // the sums of all subgroups are there
  if (lane >= ROWS * COLUMNS) return;
  const uint row = lane / COLUMNS, column = first_column + lane % COLUMNS;
  if (column >= p.columns) return;
  float sum = parts[lane];
  for (uint other = 1u; other < SPLIT; ++other) sum += parts[other * (ROWS * COLUMNS) + lane];
  pm_store(y, p.y_offset + row * p.columns + column, epilogue(sum));
}

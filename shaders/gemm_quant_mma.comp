// GEMM (M <= 16) with block-quantised weights on cooperative matrices: y[m, n] = sum_k x[m, k] (w[n, k] - zero) scale. See
// include/quant_weights.glsl.
//
// w: packed by pack_quant_weights.comp as [columns / 16][k_size / 128][2][BITS / 4][32 lanes][16 bytes], so that an invocation loads the
// bytes of its own fragment. w is the A operand, 16 columns at a time, and the rows of x are the B operand: 16 rows cost as much as one.
//
// Workgroup = TILES * 16 columns (of both matrices with GATED) x ROWS rows. Its subgroups split K in chunks of 128.
//   prefetch UNROLL chunks of w, scales and zero points
//   for each UNROLL chunks of this subgroup:
//     for each 32 of K: product = (w - zero) x in fp16 fragments (exact differences); acc = fma(product, scale, acc) in float
//     prefetch the next chunks (REGISTER_STAGES 2: into a second set of registers, before this set is multiplied)
//   reduce over subgroups in shared memory; epilogue; store
// NORMED: fuses RMSNormalization. Each subgroup stores its own part of the rows in shared memory, multiplied by the gain and by a power of
// two that brings it into the range of fp16, so subgroups need not synchronise. The factor 1 / sqrt(mean(x^2) + epsilon) is applied in the
// reduction.
// X_IN_REGISTERS: a single row is loaded into registers together with w.
//
// Requires cooperative matrices in the layout of include/mma.glsl (has_or_emulates_mma). Selected in cpp/operators/conv_gemm/quant_gemm.cpp
// (make_mma_tiling) for up to 16 rows.
#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#if !EMULATED
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
#define FRAGMENTS 1
#define W_UVEC4 1
#define X_VEC8 1
#define LANES 0
#define GRID_AXES 3
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/epilogue.glsl"
#include "include/tensor.glsl"
#include "include/quant_weights.glsl"

layout(local_size_x_id = 1) in;
layout(constant_id = 1) const uint INVOCATIONS = 128u;
layout(constant_id = 2) const uint TILES = 1u;               // tiles of 16 columns, per matrix
layout(constant_id = 3) const uint UNROLL = 1u;              // chunks of 128 K steps prefetched at once
layout(constant_id = 4) const uint STAGED = 1u;              // NORMED: vec8s of x in shared memory; rows are padded by one
layout(constant_id = 5) const uint NO_K_TAIL = 0u;           // 1: all subgroups have equal, full chunks, so no load goes past K
layout(constant_id = 6) const uint REGISTER_STAGES = 1u;     // 2: the next chunks are loaded while the current ones are multiplied
layout(constant_id = 7) const uint SKIP_LAST_PREFETCH = 0u;  // 1: skip the prefetch after the last iteration; 0: no branch
layout(constant_id = 8) const uint STAGED_PER_THREAD = 1u;   // NORMED: maximum number of vec8s of a row that an invocation stages
#include "include/mma.glsl"

#if GATED
const uint MATRICES = 2u;
#else
const uint MATRICES = 1u;
#endif
const uint ALL_TILES = TILES * MATRICES, SPLIT = INVOCATIONS / kLanes;
const uint ROW_BLOCKS = ROWS > 8u ? 2u : 1u;  // number of blocks of 8 rows
const uint USED_COMPONENTS = ROWS == 1u ? 2u : ROW_BLOCKS * 4u;  // number of accumulator components that belong to rows
const uint TILE_N = TILES * 16u, REDUCE_PITCH = ROW_BLOCKS * 8u + 1u;  // padded by one to avoid bank conflicts
const uint kPieces = uint(BITS) / 4u;  // number of 16-byte pieces of a line per chunk

shared float partials[SPLIT * ALL_TILES * 16u * REDUCE_PITCH];
#if NORMED
shared uvec4 staged[STAGED];
// for each row and subgroup: sum of squares of x; factor that undoes the fp16 scaling of its partial results
shared float squares[ROWS * SPLIT], partial_scales[ROWS * SPLIT];
uvec4 row_x[STAGED_PER_THREAD];
vec4 row_gain[STAGED_PER_THREAD * 2u];
#endif

uint chunks, tiles;
const uint LOADED_LINES = UNROLL * ALL_TILES * 2u;
uvec4 regs_w[REGISTER_STAGES * LOADED_LINES * kPieces];
Scales regs_scale[REGISTER_STAGES * LOADED_LINES];
#if ZERO
Scales regs_zero[REGISTER_STAGES * LOADED_LINES];
#endif
#if X_IN_REGISTERS
uvec4 regs_x[REGISTER_STAGES * UNROLL * 4u];
#endif
float sums[ALL_TILES * USED_COMPONENTS];

#define FOR(i, count) [[unroll]] for (uint i = 0u; i < (count); ++i)

// Returns the accumulator component that value i of `sums` holds.
uint acc_component(uint i) {
  return USED_COMPONENTS == 2u ? i * 4u : ROW_BLOCKS == 2u ? i : i / 2u * 4u + i % 2u;
}

// Loads a vec8 of row `row` of the workgroup; zeros past K.
uvec4 load_vec8(uint row, uint first_row, uint vec8_index) {
#if NORMED
  // Past the last chunk, returns zeros without a read: another subgroup may be writing there.
  if (NO_K_TAIL == 0u && vec8_index >= chunks * 16u) return uvec4(0u);
  return staged[min(row, ROWS - 1u) * (chunks * 16u + 1u) + vec8_index];
#else
  const uint at = p.x_offset + (ROWS == 1u ? first_row : min(first_row + row, p.rows - 1u)) * p.k_size;
  if (NO_K_TAIL == 1u) return x[at / 8u + vec8_index];
  const bool inside = vec8_index < p.k_size / 8u;
  const uvec4 words = x[at / 8u + (inside ? vec8_index : 0u)];
  return inside ? words : uvec4(0u);
#endif
}

// Loads UNROLL chunks of this subgroup, starting at `begin`, without branches so that all loads are in flight at once. Past the end the
// last chunk is repeated, and multiply() uses zeros for x.
void prefetch_chunks(uint stage, uint begin, uint first_tile, uint first_row) {
  FOR(k, UNROLL) {
    const uint chunk = min(begin + k, chunks - 1u);
#if X_IN_REGISTERS
    FOR(k_quarter, 4u) regs_x[(stage * UNROLL + k) * 4u + k_quarter] = load_vec8(0u, first_row, chunk * 16u + k_quarter * 4u + LANE % 4u);
#endif
    FOR(s, ALL_TILES) {
      const uint chunk_index = min(first_tile + s % TILES, tiles - 1u) * chunks + chunk, at = stage * LOADED_LINES + (k * ALL_TILES + s) * 2u;
      FOR(h, 2u) {
        const uint scale_index = chunk_index * 16u + h * 8u + LANE / 4u;
        FOR(i, kPieces) {
          const uint piece = ((chunk_index * 2u + h) * kPieces + i) * kLanes + LANE;
#if GATED
          if (s >= TILES) {
            regs_w[(at + h) * kPieces + i] = gate_w[p.gate_w_offset / (128u / BITS) + piece];
            continue;
          }
#endif
          regs_w[(at + h) * kPieces + i] = w[p.w_offset / (128u / BITS) + piece];
        }
#if GATED
        regs_scale[at + h] = s >= TILES ? gate_scale[scale_index] : scale[scale_index];
#if ZERO
        regs_zero[at + h] = s >= TILES ? gate_zero[scale_index] : zero[scale_index];
#endif
#else
        regs_scale[at + h] = scale[scale_index];
#if ZERO
        regs_zero[at + h] = zero[scale_index];
#endif
#endif
      }
    }
  }
}

// Returns elements 2 * `pair` and 2 * `pair` + 1 of a word, minus the zero point. pack_quant_weights.comp puts them in different halves, so
// that one mask extracts both; OR-ing in 0x6400 makes each the fp16 value 1024 + w.
Operand2 unpack_pair(uint word, uint pair, float zero_value) {
#if BITS == 4
  const uint shifted = pair < 2u ? word : word >> 8;
  if (pair % 2u == 0u) return UNPACK_OPERAND2((shifted & 0x000f000fu) | 0x64006400u) - Operand2(1024.0 + zero_value);
  return fma(UNPACK_OPERAND2((shifted & 0x00f000f0u) | 0x64006400u), Operand2(0.0625), Operand2(-(64.0 + zero_value)));
#else
  const uint shifted = pair == 0u ? word : word >> 8;
  return UNPACK_OPERAND2((shifted & 0x00ff00ffu) | 0x64006400u) - Operand2(1024.0 + zero_value);
#endif
}

// Returns two elements of a line for quarter `k_quarter` of a chunk and MMA `mma_index` (0 or 1).
Operand2 weight_operands(uint at, uint k_quarter, uint mma_index, uint pair, float zero_value) {
#if BITS == 4
  return unpack_pair(regs_w[at * kPieces][k_quarter], mma_index * 2u + pair, zero_value);
#else
  return unpack_pair(regs_w[at * kPieces + k_quarter / 2u][k_quarter % 2u * 2u + mma_index], pair, zero_value);
#endif
}

// Accumulates the loaded chunks.
void multiply(uint stage, uint begin, uint first_row) {
  FOR(k, UNROLL) FOR(k_quarter, 4u) {
    const uint chunk = begin + k, vec8_index = chunk * 16u + k_quarter * 4u + LANE % 4u;
#if X_IN_REGISTERS
    uvec4 rows_a = regs_x[(stage * UNROLL + k) * 4u + k_quarter], rows_b = uvec4(0u);
#else
    uvec4 rows_a = load_vec8(LANE / 4u, first_row, vec8_index), rows_b = uvec4(0u);
#endif
    if (ROW_BLOCKS == 2u) rows_b = load_vec8(LANE / 4u + 8u, first_row, vec8_index);
    if (NO_K_TAIL == 0u && chunk >= chunks) rows_a = uvec4(0u), rows_b = uvec4(0u);
    MATRIX_B(low);
    MATRIX_B(high);
    SET_FRAGMENT(low, UNPACK_OPERAND2(rows_a.x), UNPACK_OPERAND2(rows_a.y), UNPACK_OPERAND2(rows_b.x), UNPACK_OPERAND2(rows_b.y))
    SET_FRAGMENT(high, UNPACK_OPERAND2(rows_a.z), UNPACK_OPERAND2(rows_a.w), UNPACK_OPERAND2(rows_b.z), UNPACK_OPERAND2(rows_b.w))
    FOR(s, ALL_TILES) {
      const uint at = stage * LOADED_LINES + (k * ALL_TILES + s) * 2u;
#if ZERO
      const float zero_a = scale_at(regs_zero[at], k_quarter * 32u), zero_b = scale_at(regs_zero[at + 1u], k_quarter * 32u);
#else
      const float zero_a = float(POINT) + kBias, zero_b = zero_a;
#endif
      MATRIX_A(left);
      ACCUMULATOR(products);
      SET_FRAGMENT(left, weight_operands(at, k_quarter, 0u, 0u, zero_a), weight_operands(at, k_quarter, 0u, 1u, zero_a),
                     weight_operands(at + 1u, k_quarter, 0u, 0u, zero_b), weight_operands(at + 1u, k_quarter, 0u, 1u, zero_b))
      MMA(left, low, products);
      SET_FRAGMENT(left, weight_operands(at, k_quarter, 1u, 0u, zero_a), weight_operands(at, k_quarter, 1u, 1u, zero_a),
                     weight_operands(at + 1u, k_quarter, 1u, 0u, zero_b), weight_operands(at + 1u, k_quarter, 1u, 1u, zero_b))
      MMA(left, high, products);
      const float scale_a = scale_at(regs_scale[at], k_quarter * 32u), scale_b = scale_at(regs_scale[at + 1u], k_quarter * 32u);
      FOR(i, USED_COMPONENTS) {
        const uint component = acc_component(i);
        sums[s * USED_COMPONENTS + i] = fma(products[component], component < 4u ? scale_a : scale_b, sums[s * USED_COMPONENTS + i]);
      }
    }
  }
}

#if NORMED
// Returns 1 / RMS of a row.
float inverse_rms(float sum) {
  return pm_divide(1.0, pm_sqrt(pm_divide(sum, float(p.k_size)) + p.epsilon));
}

// Index in the row of the i-th vec8 that this invocation stages.
uint staged_index(uint i) {
  const uint n = i * 2u + LANE / 16u;
  return ((n / UNROLL * SPLIT + SUBGROUP_ID) * UNROLL + n % UNROLL) * 16u + LANE % 16u;
}

// Loads the elements of a row that this invocation stages, and the gain.
void load_row(uint first_row, uint r) {
  const uint begin = (p.x_offset + min(first_row + r, p.rows - 1u) * p.k_size) / 8u;
  FOR(i, STAGED_PER_THREAD) {
    const uint e = min(staged_index(i), p.k_size / 8u - 1u);
    row_x[i] = x[begin + e];
    row_gain[i * 2u] = gain[e * 2u];
    row_gain[i * 2u + 1u] = gain[e * 2u + 1u];
  }
}

// Returns two of the loaded elements, multiplied by the gain.
vec2 scaled_pair(uint i, uint pair) {
  const vec4 gains = row_gain[i * 2u + pair / 2u];
  return pm_unpack_halves(row_x[i][pair]) * (pair % 2u == 0u ? gains.xy : gains.zw);
}

// Computes the subgroup's sum of squares of row r, and the power of two that scales its elements for fp16. The butterfly reduction adds the
// same pair in both lanes, so all lanes get identical sums.
float fp16_scale(uint r) {
  float sum = 0.0, largest = 0.0;
  FOR(i, STAGED_PER_THREAD) FOR(pair, 4u) {
    const bool inside = staged_index(i) < p.k_size / 8u;
    const vec2 two = pm_unpack_halves(row_x[i][pair]), scaled = abs(scaled_pair(i, pair));
    sum += inside ? dot(two, two) : 0.0;
    largest = inside ? max(largest, max(scaled.x, scaled.y)) : largest;
  }
  [[unroll]] for (uint mask = 1u; mask < kLanes; mask <<= 1) {
    sum += SHUFFLE_XOR(sum, mask);
    largest = max(largest, SHUFFLE_XOR(largest, mask));
  }
  // Scales the largest magnitude to [2^14, 2^15): no overflow, and as few subnormals as possible. The exponent of a float starts at bit 23
  // and has a bias of 127.
  const uint exponent = clamp(floatBitsToUint(largest) >> 23, 15u, 253u);
  if (LANE == 0u) squares[r * SPLIT + SUBGROUP_ID] = sum, partial_scales[r * SPLIT + SUBGROUP_ID] = uintBitsToFloat((exponent - 14u) << 23);
  return uintBitsToFloat((268u - exponent) << 23);
}

// Stores this subgroup's part of the rows to shared memory, with zeros past K. Row 0 is already loaded.
void stage_rows(uint first_row) {
  for (uint r = 0u; r < ROWS; ++r) {
    if (r > 0u) load_row(first_row, r);
    const float factor = fp16_scale(r);
    FOR(i, STAGED_PER_THREAD) {
      uvec4 packed;
      FOR(pair, 4u) packed[pair] = packHalf2x16(scaled_pair(i, pair) * factor);
      const uint e = staged_index(i);
      if (e < chunks * 16u) staged[r * (chunks * 16u + 1u) + e] = e < p.k_size / 8u ? packed : uvec4(0u);
    }
  }
  SUBGROUP_BARRIER();
}
#endif

// Reduces the partial sums of all subgroups for a column of a tile and a row.
float reduce_partials(uint tile_index, uint column, uint row) {
  float sum = 0.0, all = 0.0;
  FOR(k, SPLIT) {
    const float partial = partials[((k * ALL_TILES + tile_index) * 16u + column) * REDUCE_PITCH + row];
#if NORMED
    sum += partial * partial_scales[row * SPLIT + k];
    all += squares[row * SPLIT + k];
#else
    sum += partial;
#endif
  }
#if NORMED
  return sum * inverse_rms(all);
#else
  return sum;
#endif
}

void main() {
  const uvec3 group = grid_group((p.columns + TILE_N - 1u) / TILE_N, (p.rows + ROWS - 1u) / ROWS);
  if (is_past_grid(group, 1u)) return;
  const uint first_tile = group.x * TILES, first_row = group.y * ROWS, step = SPLIT * UNROLL;
  tiles = (p.columns + 15u) / 16u, chunks = (p.k_size + 127u) / 128u;
  uint begin = SUBGROUP_ID * UNROLL;
  FOR(i, ALL_TILES * USED_COMPONENTS) sums[i] = 0.0;
#if NORMED
  load_row(first_row, 0u);  // x is needed first, so it is loaded before w
#endif
  prefetch_chunks(0u, begin, first_tile, first_row);
#if NORMED
  stage_rows(first_row);
#endif
  for (uint iterations = (chunks + step - 1u) / step; iterations > 0u; --iterations, begin += step) {
    if (REGISTER_STAGES == 2u) {
      prefetch_chunks(1u, begin + step, first_tile, first_row);
      multiply(0u, begin, first_row);
      if (--iterations == 0u) break;
      begin += step;
      prefetch_chunks(0u, begin + step, first_tile, first_row);
      multiply(1u, begin, first_row);
    } else {
      multiply(0u, begin, first_row);
      if (SKIP_LAST_PREFETCH == 0u || iterations > 1u) prefetch_chunks(0u, begin + step, first_tile, first_row);
    }
  }
  FOR(s, ALL_TILES) FOR(i, USED_COMPONENTS) {
    const uint component = acc_component(i);
    partials[((SUBGROUP_ID * ALL_TILES + s) * 16u + ACC_ROW(component)) * REDUCE_PITCH + ACC_COLUMN(component)] = sums[s * USED_COMPONENTS + i];
  }
  barrier();
  for (uint q = gl_LocalInvocationIndex; q < TILE_N * ROWS; q += INVOCATIONS) {
    const uint tile = q % TILE_N / 16u, row = q / TILE_N, column = first_tile * 16u + q % TILE_N;
    if (column >= p.columns || first_row + row >= p.rows) continue;
    const uint at = (first_row + row) * p.columns + column;
    const float sum = reduce_partials(tile, q % 16u, row);
#if GATED
    pm_store(y, p.y_offset + at, epilogue(sum, apply_gate(reduce_partials(TILES + tile, q % 16u, row))));
#else
    pm_store(y, p.y_offset + at, apply_epilogue(sum, at));
#endif
  }
}

// GEMM (M <= 16) with block-quantised weights on cooperative matrices: y[m, n] = sum_k x[m, k] (w[n, k] - zero) scale. See
// include/quant_weights.glsl.
//
// w: packed by pack_quant_weights.comp as [columns / 16][depth / 128][2][BITS / 4][32 lanes][16 bytes], so that an invocation loads the bytes of
// its own fragment. w is the A operand, 16 columns at a time, and the rows of x are the B operand: 16 rows cost as much as one.
//
// Workgroup = TILES * 16 columns (of both matrices with GATED) x ROWS rows. Its subgroups split K in chunks of 128.
//   prefetch AHEAD chunks of w, scales and zero points
//   for each AHEAD chunks of this subgroup:
//     for each 32 of K: product = (w - zero) x in fp16 fragments (exact differences); acc = fma(product, scale, acc) in float
//     prefetch the next chunks (TURNS 2: into a second set of registers, before this set is multiplied)
//   reduce over subgroups in shared memory; epilogue; store
// NORMED: fuses RMSNormalization. Each subgroup stores its own part of the rows in shared memory, multiplied by the gain and by a power of
// two that brings it into the range of fp16, so subgroups need not synchronise. The factor 1 / sqrt(mean(x^2) + epsilon) is applied in the
// reduction.
// HELD_X: a single row is loaded into registers together with w.
//
// Requires the fragment layout (has_fragments). Selected in cpp/operators/conv_gemm/quant_gemm.cpp (quads_tiling) for up to 16 rows.
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
#define W_FOURS 1
#define X_EIGHTS 1
#define LANES 0
#define GRID_AXES 3
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/epilogue.glsl"
#include "include/tensor.glsl"
#include "include/quant_weights.glsl"

layout(local_size_x_id = 1) in;
layout(constant_id = 1) const uint INVOCATIONS = 128u;
layout(constant_id = 2) const uint TILES = 1u;   // tiles of 16 columns, per matrix
layout(constant_id = 3) const uint AHEAD = 1u;   // chunks of 128 K steps prefetched at once
layout(constant_id = 4) const uint STAGED = 1u;  // NORMED: vec8s of x in shared memory; rows are padded by one
layout(constant_id = 5) const uint WHOLE = 0u;   // 1: all subgroups have equal, full chunks, so no load goes past K
layout(constant_id = 6) const uint TURNS = 1u;   // 2: the next chunks are loaded while the current ones are multiplied
layout(constant_id = 7) const uint SPARED = 0u;  // 1: skip the prefetch after the last iteration; 0: no branch
layout(constant_id = 8) const uint PARTS = 1u;   // NORMED: maximum number of vec8s of a row that an invocation stages
#include "include/mma.glsl"

#if GATED
const uint MATRICES = 2u;
#else
const uint MATRICES = 1u;
#endif
const uint SETS = TILES * MATRICES, SPLIT = INVOCATIONS / kLanes;
const uint EIGHTS = ROWS > 8u ? 2u : 1u;                               // number of blocks of 8 rows
const uint KEPT = ROWS == 1u ? 2u : EIGHTS * 4u;                       // number of accumulator components that belong to rows
const uint WIDE = TILES * 16u, MET = EIGHTS * 8u + 1u;                 // padded by one to avoid bank conflicts
const uint kPieces = uint(BITS) / 4u;                                  // number of 16-byte pieces of a line per chunk

shared float meeting[SPLIT * SETS * 16u * MET];
#if NORMED
shared uvec4 staged[STAGED];
shared float squares[ROWS * SPLIT], units[ROWS * SPLIT];  // for each row and subgroup: sum of squares; factor of its partial results
uvec4 row_x[PARTS];
vec4 row_gain[PARTS * 2u];
#endif

uint chunks, tiles;
const uint HELD = AHEAD * SETS * 2u;
uvec4 held_w[TURNS * HELD * kPieces];
Scales held_scale[TURNS * HELD];
#if ZERO
Scales held_zero[TURNS * HELD];
#endif
#if HELD_X
uvec4 held_x[TURNS * AHEAD * 4u];
#endif
float sums[SETS * KEPT];

#define FOR(i, count) [[unroll]] for (uint i = 0u; i < (count); ++i)

// Returns the accumulator component of kept value i.
uint component_of(uint i) {
  return KEPT == 2u ? i * 4u : EIGHTS == 2u ? i : i / 2u * 4u + i % 2u;
}

// Loads vec8 `eight` of row `row` of the workgroup; zeros past K.
uvec4 eight_of(uint row, uint first_row, uint eight) {
#if NORMED
  // Past the last chunk, returns zeros without a read: another subgroup may be writing there.
  if (WHOLE == 0u && eight >= chunks * 16u) return uvec4(0u);
  return staged[min(row, ROWS - 1u) * (chunks * 16u + 1u) + eight];
#else
  const uint at = p.x_offset + (ROWS == 1u ? first_row : min(first_row + row, p.rows - 1u)) * p.depth;
  if (WHOLE == 1u) return x[at / 8u + eight];
  const bool inside = eight < p.depth / 8u;
  const uvec4 words = x[at / 8u + (inside ? eight : 0u)];
  return inside ? words : uvec4(0u);
#endif
}

// Loads AHEAD chunks of this subgroup from `begin` on, without branches so that all loads are in flight at once. Past the end the last
// chunk is repeated, and multiply() uses zeros for x.
void read(uint turn, uint begin, uint first_tile, uint first_row) {
  FOR(k, AHEAD) {
    const uint chunk = min(begin + k, chunks - 1u);
#if HELD_X
    FOR(part, 4u) held_x[(turn * AHEAD + k) * 4u + part] = eight_of(0u, first_row, chunk * 16u + part * 4u + LANE % 4u);
#endif
    FOR(s, SETS) {
      const uint place = min(first_tile + s % TILES, tiles - 1u) * chunks + chunk, at = turn * HELD + (k * SETS + s) * 2u;
      FOR(h, 2u) {
        const uint term = place * 16u + h * 8u + LANE / 4u;
        FOR(i, kPieces) {
          const uint piece = ((place * 2u + h) * kPieces + i) * kLanes + LANE;
#if GATED
          if (s >= TILES) {
            held_w[(at + h) * kPieces + i] = gate_w[p.gate_w_offset / (128u / BITS) + piece];
            continue;
          }
#endif
          held_w[(at + h) * kPieces + i] = w[p.w_offset / (128u / BITS) + piece];
        }
#if GATED
        held_scale[at + h] = s >= TILES ? gate_scale[term] : scale[term];
#if ZERO
        held_zero[at + h] = s >= TILES ? gate_zero[term] : zero[term];
#endif
#else
        held_scale[at + h] = scale[term];
#if ZERO
        held_zero[at + h] = zero[term];
#endif
#endif
      }
    }
  }
}

// Returns two elements from the two halves of a word, minus the zero point: elements 2 * `pair` and 2 * `pair` + 1. pack_quant_weights.comp orders
// them so that one mask extracts both; OR-ing in 0x6400 makes each the fp16 value 1024 + w.
Pair pair_of(uint word, uint pair, float least) {
#if BITS == 4
  const uint shifted = pair < 2u ? word : word >> 8;
  if (pair % 2u == 0u) return PAIR((shifted & 0x000f000fu) | 0x64006400u) - Pair(1024.0 + least);
  return fma(PAIR((shifted & 0x00f000f0u) | 0x64006400u), Pair(0.0625), Pair(-(64.0 + least)));
#else
  const uint shifted = pair == 0u ? word : word >> 8;
  return PAIR((shifted & 0x00ff00ffu) | 0x64006400u) - Pair(1024.0 + least);
#endif
}

// Returns the elements of a line for K step `part` of 32 and the first or second MMA (`product`).
Pair weight_pair(uint at, uint part, uint product, uint pair, float least) {
#if BITS == 4
  return pair_of(held_w[at * kPieces][part], product * 2u + pair, least);
#else
  return pair_of(held_w[at * kPieces + part / 2u][part % 2u * 2u + product], pair, least);
#endif
}

// Accumulates the loaded chunks.
void multiply(uint turn, uint begin, uint first_row) {
  FOR(k, AHEAD) FOR(part, 4u) {
    const uint chunk = begin + k, eight = chunk * 16u + part * 4u + LANE % 4u;
#if HELD_X
    uvec4 rows_a = held_x[(turn * AHEAD + k) * 4u + part], rows_b = uvec4(0u);
#else
    uvec4 rows_a = eight_of(LANE / 4u, first_row, eight), rows_b = uvec4(0u);
#endif
    if (EIGHTS == 2u) rows_b = eight_of(LANE / 4u + 8u, first_row, eight);
    if (WHOLE == 0u && chunk >= chunks) rows_a = uvec4(0u), rows_b = uvec4(0u);
    RIGHT(low);
    RIGHT(high);
    SET_COMPONENTS(low, PAIR(rows_a.x), PAIR(rows_a.y), PAIR(rows_b.x), PAIR(rows_b.y))
    SET_COMPONENTS(high, PAIR(rows_a.z), PAIR(rows_a.w), PAIR(rows_b.z), PAIR(rows_b.w))
    FOR(s, SETS) {
      const uint at = turn * HELD + (k * SETS + s) * 2u;
#if ZERO
      const float least_a = term_of(held_zero[at], part * 32u), least_b = term_of(held_zero[at + 1u], part * 32u);
#else
      const float least_a = float(POINT) + kBias, least_b = least_a;
#endif
      LEFT(left);
      SUMS(products);
      SET_COMPONENTS(left, weight_pair(at, part, 0u, 0u, least_a), weight_pair(at, part, 0u, 1u, least_a),
                     weight_pair(at + 1u, part, 0u, 0u, least_b), weight_pair(at + 1u, part, 0u, 1u, least_b))
      MULTIPLY_ADD(left, low, products);
      SET_COMPONENTS(left, weight_pair(at, part, 1u, 0u, least_a), weight_pair(at, part, 1u, 1u, least_a),
                     weight_pair(at + 1u, part, 1u, 0u, least_b), weight_pair(at + 1u, part, 1u, 1u, least_b))
      MULTIPLY_ADD(left, high, products);
      const float unit_a = term_of(held_scale[at], part * 32u), unit_b = term_of(held_scale[at + 1u], part * 32u);
      FOR(i, KEPT) {
        const uint component = component_of(i);
        sums[s * KEPT + i] = fma(products[component], component < 4u ? unit_a : unit_b, sums[s * KEPT + i]);
      }
    }
  }
}

#if NORMED
// Returns 1 / RMS of a row.
float share_of(float sum) {
  return pm_divide(1.0, pm_sqrt(pm_divide(sum, float(p.depth)) + p.epsilon));
}

// Index of the i-th vec8 that this invocation stages of a row, within its subgroup's chunks.
uint own_eight(uint i) {
  const uint n = i * 2u + LANE / 16u;
  return ((n / AHEAD * SPLIT + SUBGROUP_NUMBER) * AHEAD + n % AHEAD) * 16u + LANE % 16u;
}

// Loads the elements of a row that this invocation stages, and the gain.
void load_row(uint first_row, uint r) {
  const uint begin = (p.x_offset + min(first_row + r, p.rows - 1u) * p.depth) / 8u;
  FOR(i, PARTS) {
    const uint e = min(own_eight(i), p.depth / 8u - 1u);
    row_x[i] = x[begin + e];
    row_gain[i * 2u] = gain[e * 2u];
    row_gain[i * 2u + 1u] = gain[e * 2u + 1u];
  }
}

// Returns two of the loaded elements, multiplied by the gain.
vec2 own_pair(uint i, uint pair) {
  const vec4 gains = row_gain[i * 2u + pair / 2u];
  return pm_unpack_halves(row_x[i][pair]) * (pair % 2u == 0u ? gains.xy : gains.zw);
}

// Computes the subgroup's sum of squares of row r, and the power of two that scales its elements for fp16. The butterfly adds the same pair
// in both lanes, so all lanes get identical sums.
float factor_of(uint r) {
  float sum = 0.0, most = 0.0;
  FOR(i, PARTS) FOR(pair, 4u) {
    const bool inside = own_eight(i) < p.depth / 8u;
    const vec2 two = pm_unpack_halves(row_x[i][pair]), scaled = abs(own_pair(i, pair));
    sum += inside ? dot(two, two) : 0.0;
    most = inside ? max(most, max(scaled.x, scaled.y)) : most;
  }
  [[unroll]] for (uint mask = 1u; mask < kLanes; mask <<= 1) {
    sum += FROM_OTHER(sum, mask);
    most = max(most, FROM_OTHER(most, mask));
  }
  // Scales the largest magnitude to [2^14, 2^15): no overflow, and as few subnormals as possible. The exponent of a float starts at bit 23
  // and has a bias of 127.
  const uint exponent = clamp(floatBitsToUint(most) >> 23, 15u, 253u);
  if (LANE == 0u) squares[r * SPLIT + SUBGROUP_NUMBER] = sum, units[r * SPLIT + SUBGROUP_NUMBER] = uintBitsToFloat((exponent - 14u) << 23);
  return uintBitsToFloat((268u - exponent) << 23);
}

// Stores this subgroup's part of the rows to shared memory, with zeros past K. Row 0 is already loaded.
void stage_rows(uint first_row) {
  for (uint r = 0u; r < ROWS; ++r) {
    if (r > 0u) load_row(first_row, r);
    const float factor = factor_of(r);
    FOR(i, PARTS) {
      uvec4 made;
      FOR(pair, 4u) made[pair] = packHalf2x16(own_pair(i, pair) * factor);
      const uint e = own_eight(i);
      if (e < chunks * 16u) staged[r * (chunks * 16u + 1u) + e] = e < p.depth / 8u ? made : uvec4(0u);
    }
  }
  SUBGROUP_MEETS();
}
#endif

// Reduces the partial sums of all subgroups for a column of a tile and a row.
float met(uint set, uint column, uint row) {
  float sum = 0.0, all = 0.0;
  FOR(k, SPLIT) {
    const float part = meeting[((k * SETS + set) * 16u + column) * MET + row];
#if NORMED
    sum += part * units[row * SPLIT + k];
    all += squares[row * SPLIT + k];
#else
    sum += part;
#endif
  }
#if NORMED
  return sum * share_of(all);
#else
  return sum;
#endif
}

void main() {
  const uvec3 group = grid_group((p.columns + WIDE - 1u) / WIDE, (p.rows + ROWS - 1u) / ROWS);
  if (is_past_grid(group, 1u)) return;
  const uint first_tile = group.x * TILES, first_row = group.y * ROWS, step = SPLIT * AHEAD;
  tiles = (p.columns + 15u) / 16u, chunks = (p.depth + 127u) / 128u;
  uint begin = SUBGROUP_NUMBER * AHEAD;
  FOR(i, SETS * KEPT) sums[i] = 0.0;
#if NORMED
  load_row(first_row, 0u);  // x is needed first, so it is loaded before w
#endif
  read(0u, begin, first_tile, first_row);
#if NORMED
  stage_rows(first_row);
#endif
  for (uint turns = (chunks + step - 1u) / step; turns > 0u; --turns, begin += step) {
    if (TURNS == 2u) {
      read(1u, begin + step, first_tile, first_row);
      multiply(0u, begin, first_row);
      if (--turns == 0u) break;
      begin += step;
      read(0u, begin + step, first_tile, first_row);
      multiply(1u, begin, first_row);
    } else {
      multiply(0u, begin, first_row);
      if (SPARED == 0u || turns > 1u) read(0u, begin + step, first_tile, first_row);
    }
  }
  FOR(s, SETS) FOR(i, KEPT) {
    const uint component = component_of(i);
    meeting[((SUBGROUP_NUMBER * SETS + s) * 16u + ROW_OF(component)) * MET + COLUMN_OF(component)] = sums[s * KEPT + i];
  }
  barrier();
  for (uint q = gl_LocalInvocationIndex; q < WIDE * ROWS; q += INVOCATIONS) {
    const uint tile = q % WIDE / 16u, row = q / WIDE, column = first_tile * 16u + q % WIDE;
    if (column >= p.columns || first_row + row >= p.rows) continue;
    const uint at = (first_row + row) * p.columns + column;
    const float sum = met(tile, q % 16u, row);
#if GATED
    pm_store(y, p.y_offset + at, epilogue(sum, gate_of(met(TILES + tile, q % 16u, row))));
#else
    pm_store(y, p.y_offset + at, finished(sum, at));
#endif
  }
}

// Products of a few rows with a matrix in blocks for GPUs: see include/blocks.glsl. The invocations of a team have COLUMNS columns of ROWS
// rows between them and read sixteen bytes of each column at once, all of one block; the next ones are on their way meanwhile. What a
// block's integers add to a row is multiplied by the scale once, after the zero point's share has been taken from it.
//
// A kernel of this form reads weights of 4 bits at 1.9 TB/s on an H200, one of one invocation a word and a workgroup a column at 0.7.
#version 450
#if SUBGROUP
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
#extension GL_EXT_control_flow_attributes : require
#define W_FOURS 1
#define X_EIGHTS 1
#define LANES 0
#define GRID_AXES 3
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/epilogue.glsl"
#include "include/tensor.glsl"
#include "include/eights.glsl"
#include "include/blocks.glsl"

layout(local_size_x = TEAM * TEAMS) in;
#include "include/team.glsl"
shared vec4 meeting[TEAM * TEAMS + 16u];
PM_GATHER(gather_sums, vec4, meeting, pm_sum)

const uint kPiece = 4u * IN_WORD;  // elements of sixteen bytes
#define FOR_ROWS(r) [[unroll]] for (uint r = 0u; r < ROWS; ++r)
#define FOR_COLUMNS(c) [[unroll]] for (uint c = 0u; c < COLUMNS; ++c)

void main() {
  const uint tile = COLUMNS * TEAMS;
  const uvec3 group = grid_group((p.columns + tile - 1u) / tile, (p.rows + ROWS - 1u) / ROWS);
  if (is_past_grid(group, 1u)) return;
  const uint first_column = group.x * tile + TEAM_NUMBER * COLUMNS, first_row = group.y * ROWS;
  const uint pieces = p.depth / kPiece, first_w = p.w_offset / kPiece;
  uint columns[COLUMNS], at_x[ROWS];
  uvec4 held[COLUMNS];
  vec4 sums[ROWS];
  FOR_COLUMNS(c) {
    columns[c] = min(first_column + c, p.columns - 1u);
    held[c] = w[first_w + columns[c] * pieces + min(TEAM_MEMBER, pieces - 1u)];
  }
  FOR_ROWS(r) {
    at_x[r] = (p.x_offset + min(first_row + r, p.rows - 1u) * p.depth) / 8u;
    sums[r] = vec4(0.0);
  }
  for (uint i = TEAM_MEMBER; i < pieces; i += TEAM) {
    uvec4 now[COLUMNS];
    float least[COLUMNS], unit[COLUMNS];
    FOR_COLUMNS(c) {
      now[c] = held[c];
      held[c] = w[first_w + columns[c] * pieces + min(i + TEAM, pieces - 1u)];
      const uint block = columns[c] * p.blocks + i * kPiece / p.block;
      least[c] = zero_point(block);
      unit[c] = scale[block];
    }
    FOR_ROWS(r) {
      vec4 parts = vec4(0.0);
      float total = 0.0;
      [[unroll]] for (uint e = 0u; e < kPiece / 8u; ++e) {
        const EIGHT eight = x[at_x[r] + i * (kPiece / 8u) + e];
        const vec4 low = low_of(eight), high = high_of(eight);
        total += (low.x + low.y + low.z + low.w) + (high.x + high.y + high.z + high.w);
        FOR_COLUMNS(c) {
          const uint first = e * 8u;  // of the piece's elements
          vec4 a, b;
          [[unroll]] for (uint j = 0u; j < 4u; ++j) {
            a[j] = integer_in(now[c][(first + j) / IN_WORD], (first + j) % IN_WORD);
            b[j] = integer_in(now[c][(first + 4u + j) / IN_WORD], (first + 4u + j) % IN_WORD);
          }
          parts[c] += dot(a, low) + dot(b, high);
        }
      }
      FOR_COLUMNS(c) sums[r][c] = fma(parts[c] - least[c] * total, unit[c], sums[r][c]);
    }
  }
  FOR_ROWS(r) {
    const vec4 all = gather_sums(sums[r]);
    FOR_COLUMNS(c) {
      const uint row = first_row + r, column = first_column + c;
      if (TEAM_MEMBER != c || column >= p.columns || row >= p.rows) continue;
      const uint at = row * p.columns + column;
      pm_store(y, p.y_offset + at, finished(all[c], at));
    }
  }
}

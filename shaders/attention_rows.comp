// Attention of a few rows, bound by the reading of keys and values: TEAM invocations have a key between them, HELD fours of it each, and
// use it for ROWS rows. TEAMS teams take turns with the keys, four at a time, and meet at the end. Rows of heads that share keys count
// as rows.
#version 450
#if LANES || SUBGROUP
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
#extension GL_EXT_control_flow_attributes : require
#define GRID_AXES 0
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#include "include/attention.glsl"
layout(local_size_x = TEAM * TEAMS) in;
#include "include/team.glsl"
#if LANES
#define TEAM_NUMBER 0u
#define TEAM_MEMBER gl_LocalInvocationID.x
#else
shared vec4 meeting[TEAM * TEAMS + 16u];
#endif
PM_GATHER(gather_sums, vec4, meeting, pm_sum)

#define FOUR(h) ((TEAM_MEMBER + (h) * TEAM) * 4u)
#define FOR_ROWS(r) [[unroll]] for (uint r = 0u; r < ROWS; ++r)
#define FOR_HELD(h) [[unroll]] for (uint h = 0u; h < HELD; ++h)

#if TEAMS > 1
shared vec4 team_sums[TEAMS * TEAM * HELD];
shared vec2 team_terms[TEAMS];
#endif

void main() {
  const uint kv_heads = p.heads / p.group, image = grid_group().y / kv_heads, kv_head = grid_group().y % kv_heads;
  const uint shared_rows = p.group * p.rows;
  uint heads[ROWS], rows[ROWS];
  ivec2 seen[ROWS], all = ivec2(int(p.keys), 0);
  vec4 held[ROWS * HELD], sums[ROWS * HELD];
  float largest[ROWS], sum[ROWS];
  FOR_ROWS(r) {
    const uint row = min(grid_group().x * ROWS + r, shared_rows - 1u);
    heads[r] = kv_head * p.group + row / p.rows;
    rows[r] = row % p.rows;
    seen[r] = seen_keys(image, rows[r]);
    all = ivec2(min(all.x, seen[r].x), max(all.y, seen[r].y));
    const uint at = first_q(image, heads[r], rows[r]);
    FOR_HELD(h) {
      held[r * HELD + h] = load_q(at, FOUR(h));
      sums[r * HELD + h] = vec4(0.0);
    }
    largest[r] = minus_infinity;
    sum[r] = 0.0;
  }
  const int begin = max(all.x, int(grid_group().z * p.stretch)), end = min(all.y, int((grid_group().z + 1u) * p.stretch));
  const uint at_k = first_k(image, heads[0]), at_v = first_v(image, heads[0]);
  for (int base = begin; base < end; base += int(TEAMS * 4u)) {
    const int key = base + int(TEAM_NUMBER * 4u);
    vec4 values[4u * HELD], products[ROWS];
    FOR_ROWS(r) products[r] = vec4(0.0);
    [[unroll]] for (uint i = 0u; i < 4u; ++i) {
      const uint row = uint(min(key + int(i), end - 1));
      FOR_HELD(h) {
        const vec4 four = load_k(at_k + row * p.k_row, FOUR(h));
        values[i * HELD + h] = load_v(at_v + row * p.v_row, FOUR(h));
        FOR_ROWS(r) products[r][i] += dot(held[r * HELD + h], four);
      }
    }
    FOR_ROWS(r) {
      vec4 scores = gather_sums(products[r]);
      float now = largest[r];
      [[unroll]] for (int i = 0; i < 4; ++i) {
        const bool is_seen = key + i >= seen[r].x && key + i < min(seen[r].y, end);
        scores[i] = is_seen ? score_of(image, heads[r], rows[r], uint(key + i), scores[i]) : minus_infinity;
        now = max(now, scores[i]);
      }
      const float reference = reference_of(now), factor = exp(largest[r] - reference);
      scores = exp(scores - reference);
      largest[r] = now;
      sum[r] = sum[r] * factor + ((scores.x + scores.y) + (scores.z + scores.w));
      FOR_HELD(h) {
        vec4 four = sums[r * HELD + h] * factor;
        [[unroll]] for (uint i = 0u; i < 4u; ++i) four += scores[i] * values[i * HELD + h];
        sums[r * HELD + h] = four;
      }
    }
  }
  FOR_ROWS(r) {
#if TEAMS > 1
    barrier();  // nobody reads the row before any more
    if (TEAM_MEMBER == 0u) team_terms[TEAM_NUMBER] = vec2(largest[r], sum[r]);
    FOR_HELD(h) team_sums[(TEAM_NUMBER * HELD + h) * TEAM + TEAM_MEMBER] = sums[r * HELD + h];
    barrier();  // the sums of all teams are there
    if (TEAM_NUMBER == 0u) {
      for (uint t = 0u; t < TEAMS; ++t) largest[r] = max(largest[r], team_terms[t].x);
      sum[r] = 0.0;
      FOR_HELD(h) sums[r * HELD + h] = vec4(0.0);
      for (uint t = 0u; t < TEAMS; ++t) {
        const float factor = exp(team_terms[t].x - reference_of(largest[r]));
        sum[r] += team_terms[t].y * factor;
        FOR_HELD(h) sums[r * HELD + h] += team_sums[(t * HELD + h) * TEAM + TEAM_MEMBER] * factor;
      }
    }
#endif
    if (TEAM_NUMBER == 0u && grid_group().x * ROWS + r < shared_rows) {
      const uint at = first_y(image, heads[r], rows[r]);
      FOR_HELD(h) store_four(at, FOUR(h), sums[r * HELD + h], sum[r]);
      if (TEAM_MEMBER == 0u) store_terms(at, largest[r], sum[r]);
    }
  }
}

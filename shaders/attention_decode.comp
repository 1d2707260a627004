// Decode attention without cooperative matrices (few queries, memory-bound). See include/attention.glsl for buffers.
//
// Workgroup (x, y, z) = (ROWS queries of heads that share K and V, K/V head of a batch item, split of the keys). TEAM invocations share a
// key: each loads HELD vec4s of it and uses them for all ROWS queries. TEAMS such groups take turns.
//   for each 4 keys of the group:
//     load K and V; partial dots for ROWS queries; reduce over the TEAM invocations
//     online softmax; acc = acc * factor + P v
//   reduce over TEAMS in shared memory; store, write the partial result (PARTS), or let the last workgroup of a row merge them (MEETS)
//
// Needs no extension on GPUs; SUBGROUP uses shuffles, LANES is the CPU variant with one subgroup of 8. Selected in attention.cpp
// (rows_plan).
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
#if MEETS
#include "include/attention_partials.glsl"
#endif
layout(local_size_x = TEAM * TEAMS) in;
#include "include/thread_group.glsl"
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
shared vec4 team_sums[ROWS * TEAMS * TEAM * HELD];
shared vec2 team_terms[ROWS * TEAMS];
#endif

// Returns (query head, query) of row r of the workgroup.
uvec2 place_of(uint r, uint kv_head) {
  const uint row = min(grid_group().x * ROWS + r, p.group * p.rows - 1u);
  return uvec2(kv_head * p.group + row / p.rows, row % p.rows);
}

void store_row(uint r, uint image, uint kv_head, vec4 sums[HELD], float largest, float sum) {
  if (grid_group().x * ROWS + r >= p.group * p.rows) return;
  const uvec2 place = place_of(r, kv_head);
  const uint at = first_y(image, place.x, place.y);
  FOR_HELD(h) store_four(at, FOUR(h), sums[h], sum);
  if (TEAM_MEMBER == 0u) store_terms(at, largest, sum);
}

#if MEETS
shared bool is_last;

// Merges the `count` splits of the rows if this workgroup is the last to finish.
void meet(uint image, uint kv_head, uint count) {
  memoryBarrierBuffer();
  barrier();  // this workgroup's partial result has been written
  if (gl_LocalInvocationIndex == 0u) {
    memoryBarrierBuffer();  // barrier() orders only shared memory
    const uint place = grid_group().y * grid_size().x + grid_group().x;
    is_last = atomicAdd(finished[place], 1u) + 1u == count;
    if (is_last) atomicExchange(finished[place], 0u);
  }
  barrier();
  if (!is_last) return;
  memoryBarrierBuffer();
  const uint fours = (V_SIZE + 3u) / 4u;
  for (uint i = gl_LocalInvocationIndex; i < ROWS * fours; i += TEAM * TEAMS) {
    const uint r = i / fours, column = i % fours * 4u;
    if (grid_group().x * ROWS + r >= p.group * p.rows) continue;
    const uvec2 place = place_of(r, kv_head);
    const uint first = ((image * p.heads + place.x) * p.rows + place.y) * grid_size().z * (V_SIZE + 2u);
    const Whole whole = whole_of(first, count, V_SIZE, column);
    store_results(p.y_offset + image * p.y_batch + place.x * p.y_head + place.y * p.y_row, column, whole.sums, whole.sum);
  }
}
#endif

void main() {
  const uint kv_heads = p.heads / p.group, image = grid_group().y / kv_heads, kv_head = grid_group().y % kv_heads;
  uint heads[ROWS], rows[ROWS];
  ivec2 seen[ROWS], all = ivec2(int(p.keys), 0);
  vec4 held[ROWS * HELD], sums[ROWS * HELD];
  float largest[ROWS], sum[ROWS];
  FOR_ROWS(r) {
    const uvec2 place = place_of(r, kv_head);
    heads[r] = place.x;
    rows[r] = place.y;
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
  // Splits the visible keys, which may be few.
  const uint seen_by_any = uint(max(all.y - all.x, 0)), least = min(TEAMS * 4u, p.stretch);
  const uint stretch = max(((seen_by_any + grid_size().z - 1u) / grid_size().z + 3u) / 4u * 4u, least);
  const int begin = all.x + int(grid_group().z * stretch), end = min(all.y, begin + int(stretch));
#if MEETS
  const uint count = max((seen_by_any + stretch - 1u) / stretch, 1u);
  if (grid_group().z >= count) return;
#endif
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
#if TEAMS > 1
  FOR_ROWS(r) {
    if (TEAM_MEMBER == 0u) team_terms[r * TEAMS + TEAM_NUMBER] = vec2(largest[r], sum[r]);
    FOR_HELD(h) team_sums[((r * TEAMS + TEAM_NUMBER) * HELD + h) * TEAM + TEAM_MEMBER] = sums[r * HELD + h];
  }
  barrier();  // partial results of all groups have been stored
  // Each group merges different rows, so the rows are merged in parallel.
  for (uint r = TEAM_NUMBER; r < ROWS; r += TEAMS) {
    float most = minus_infinity, whole = 0.0;
    vec4 merged[HELD];
    FOR_HELD(h) merged[h] = vec4(0.0);
    [[unroll]] for (uint t = 0u; t < TEAMS; ++t) most = max(most, team_terms[r * TEAMS + t].x);
    [[unroll]] for (uint t = 0u; t < TEAMS; ++t) {
      const vec2 terms = team_terms[r * TEAMS + t];
      const float factor = exp(terms.x - reference_of(most));
      whole += terms.y * factor;
      FOR_HELD(h) merged[h] += team_sums[((r * TEAMS + t) * HELD + h) * TEAM + TEAM_MEMBER] * factor;
    }
    store_row(r, image, kv_head, merged, most, whole);
  }
#else
  FOR_ROWS(r) {
    vec4 own[HELD];
    FOR_HELD(h) own[h] = sums[r * HELD + h];
    if (TEAM_NUMBER == 0u) store_row(r, image, kv_head, own, largest[r], sum[r]);
  }
#endif
#if MEETS
  meet(image, kv_head, count);
#endif
}

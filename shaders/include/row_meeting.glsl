// How the parts of rows that workgroups of attention_row_quads.comp have are put together by the last of them to finish. RESET_LAST,
// ORDERED_COUNT and TOUCHED are what that file says.
#ifndef PM_ROW_MEETING_GLSL
#define PM_ROW_MEETING_GLSL

// Four results, or a part of them: the sums of values, and of weights, that are relative to the largest score.
struct Four {
  vec4 sums;
  float largest, sum;
};

Four none() { return Four(vec4(0.0), minus_infinity, 0.0); }

// Puts `count` of them together that lie in shared memory, `stride` apart from `first` on; their terms lie from `first_term` on.
Four met(uint first, uint first_term, uint stride, uint term_stride, uint count) {
  Four whole = none();
  FOR(i, count) whole.largest = max(whole.largest, met_terms[first_term + i * term_stride].x);
  FOR(i, count) {
    const vec2 terms = met_terms[first_term + i * term_stride];
    const float factor = exp(terms.x - reference_of(whole.largest));
    whole.sum += terms.y * factor;
    whole.sums += meeting[first + i * stride] * factor;
  }
  return whole;
}

void store_whole(uint item, uint image, uint kv_head, Four whole) {
  if (!has_row(item / FOURS)) return;
  const uvec2 place = place_of(item / FOURS, kv_head);
  store_results(p.y_offset + image * p.y_batch + place.x * p.y_head + place.y * p.y_row, item % FOURS * 4u, whole.sums, whole.sum);
}

#if MEETS
// The number of the workgroup's rows among all workgroups'.
uint number_of_rows() { return grid_group().y * grid_size().x + grid_group().x; }

uint place_of_part(uint part) { return (number_of_rows() * grid_size().z + part) * ROWS * PART; }

// The parts first, first + step, ... below `count` of an item. Several are read before the first of them is needed.
Four of_parts(uint item, uint first, uint step, uint count) {
  Four whole = none();
  for (uint begin = first; begin < count; begin += step * AT_ONCE) {
    vec4 fours[AT_ONCE];
    vec2 terms[AT_ONCE];
    FOR(i, AT_ONCE) {
      const uint at = place_of_part(min(begin + i * step, count - 1u)) + item / FOURS * PART;
      fours[i] = parts[at + item % FOURS];
      terms[i] = parts[at + FOURS].xy;
    }
    const float before = whole.largest;
    FOR(i, AT_ONCE) {
      if (begin + i * step >= count) terms[i] = vec2(minus_infinity, 0.0);
      whole.largest = max(whole.largest, terms[i].x);
    }
    const float reference = reference_of(whole.largest), kept = exp(before - reference);
    whole.sum *= kept;
    whole.sums *= kept;
    FOR(i, AT_ONCE) {
      const float factor = exp(terms[i].x - reference);
      whole.sum += terms[i].y * factor;
      whole.sums += fours[i] * factor;
    }
  }
  return whole;
}

#if TOUCHED
void touch_counter() {
  const uint place = APART ? number_of_rows() * SUBGROUPS + SUBGROUP_NUMBER : number_of_rows();
  const bool counts = APART ? SUBGROUP_NUMBER * kLanes < ITEMS : SUBGROUP_NUMBER == 0u;
  if (LANE == 0u && counts) atomicAdd(finished[place], 0u);
}
#endif

// The same as meet() of a subgroup's own results. FROM_LANE of an emulated subgroup waits for the whole workgroup.
void meet_apart(uint image, uint kv_head, uint count) {
#if EMULATED
  barrier();  // this subgroup's part is there
#else
  if (SUBGROUP_NUMBER * kLanes >= ITEMS) return;
  subgroupBarrier();  // this subgroup's part is there
#endif
#if !ORDERED_COUNT || EMULATED
  memoryBarrierBuffer();
#endif
  const uint place = number_of_rows() * SUBGROUPS + SUBGROUP_NUMBER;
  uint before = 0u;
#if ORDERED_COUNT && !EMULATED
  if (LANE == 0u)
    before = atomicAdd(finished[place], 1u, gl_ScopeQueueFamily, gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
#else
  if (LANE == 0u) before = atomicAdd(finished[place], 1u);
#endif
  if (uint(FROM_LANE(float(before), 0u)) + 1u != count) return;
#if !RESET_LAST
  if (LANE == 0u) atomicExchange(finished[place], 0u);
#endif
#if ORDERED_COUNT && !EMULATED
  subgroupBarrier();  // the order of the counting is that of the whole subgroup
#else
  memoryBarrierBuffer();
#endif
  for (uint item = gl_LocalInvocationIndex; item < ITEMS; item += INVOCATIONS)
    store_whole(item, image, kv_head, of_parts(item, 0u, 1u, count));
#if RESET_LAST
  if (LANE == 0u) atomicExchange(finished[place], 0u);
#endif
}

// Puts the parts of the rows together, where no other workgroup has a part of them still to finish.
void meet(uint image, uint kv_head, uint count) {
  memoryBarrierBuffer();
  barrier();  // this workgroup's part is there
  if (gl_LocalInvocationIndex == 0u) {
    memoryBarrierBuffer();  // barrier() orders shared memory alone
    is_last = atomicAdd(finished[number_of_rows()], 1u) + 1u == count;
    if (is_last) atomicExchange(finished[number_of_rows()], 0u);
  }
  barrier();  // all know whether it was the last
  if (!is_last) return;
  memoryBarrierBuffer();
  const uint share = gl_LocalInvocationIndex / ITEMS;
  for (uint base = 0u; base < ITEMS; base += INVOCATIONS) {
    const uint item = base + gl_LocalInvocationIndex % ITEMS;
    Four whole = none();
    if (share < SPREAD && item < ITEMS) whole = of_parts(item, share, SPREAD, count);
    if (SPREAD > 1u) {
      meeting[gl_LocalInvocationIndex] = whole.sums;
      met_terms[gl_LocalInvocationIndex] = vec2(whole.largest, whole.sum);
      barrier();  // what all of them have of the parts is there
      whole = met(item, item, ITEMS, ITEMS, SPREAD);
    }
    if (share == 0u && item < ITEMS) store_whole(item, image, kv_head, whole);
  }
}
#endif
#endif

// Reduces up to four (coalesced) axes for each of up to four kept axes: s = START; s = STEP(s, v, i); y = FINISH(s, n).
//
// Each result is split into parts, which a further dispatch reduces. TEAM invocations reduce a part; each reads every TEAM-th element. They
// are adjacent; with COLUMNS, adjacent invocations belong to different results. WIDE: a load has 4 or 8 elements of one result, or with
// COLUMNS one element of each of 4 or 8 results.
//   for each element of this invocation: s = STEP(s, LOAD(...), i)
//   MERGE over TEAM (shuffles, shared memory); store FINISH, or the part
// The lowering defines X_TYPE, LOAD(i) (WIDE: HELD_TYPE, HOLD(i) and PICK(h, j)), Y_TYPE, STORE(i, v), ACCUMULATOR, START, STEP(s, v, i)
// with the element's index i, MERGE(s, t), FINISH(s, n) of RESULT_TYPE, and RESULT(v), the stored value.
//
// For all devices. Selected in cpp/operators/reduction/reduce.cpp.
#version 450
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x = LOCAL_SIZE) in;
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/epilogue.glsl"
#include "include/tensor.glsl"
#define TEAMS (LOCAL_SIZE / TEAM)
#if COLUMNS
#define EACH WIDE  // number of results per group
#define OWN 1u     // number of elements of a result per load
#else
#define EACH 1
#define OWN uint(WIDE)
#endif
#if TEAM > 1
#define AHEAD LOADS_AHEAD  // number of loads in flight at once
#else
#define AHEAD 1u
#endif
layout(binding = 0) readonly buffer X { X_TYPE x[]; };
layout(binding = 1) buffer Y { Y_TYPE y[]; };
layout(push_constant) uniform parameter {
  uint results, parts, part_size, part_stride;
  uint size;   // number of elements per result in this dispatch
  uint count;  // total number of elements per result
  uint kept[4], kept_stride[4], y_stride[4];
  uint reduced[4], reduced_stride[4];
  uint x_offset, y_offset;
} p;

RESULT_TYPE finished(ACCUMULATOR s) {
  precise RESULT_TYPE v = FINISH(s, p.count);
  return RESULT(v);
}

// State of log-sum-exp: (maximum, sum of exponentials relative to it). An element equal to the maximum counts as 1, even if infinite; the
// results are then infinite or NaN. Merges two states:
vec2 pm_merge_exponentials(vec2 s, vec2 t) {
  const float largest = pm_max(s.x, t.x);
  precise float below_s = s.x - largest, below_t = t.x - largest;
  return vec2(largest, (s.x == largest ? s.y : s.y * exp(below_s)) + (t.x == largest ? t.y : t.y * exp(below_t)));
}

// Adds an element to the state.
vec2 pm_add_exponential(vec2 s, float v) {
  precise float apart = v - s.x;
  const float decay = exp(s.x == v ? 0.0 : -abs(apart));
  return vec2(pm_max(s.x, v), v > s.x ? s.y * decay + 1.0 : s.y + decay);
}

#if EXPONENTIALS
// Adds several elements, with one exp() each. NaN propagates.
vec2 pm_add_exponentials(vec2 s, float v[AHEAD * OWN]) {
  float largest = s.x;
  [[unroll]] for (uint i = 0u; i < AHEAD * OWN; ++i) largest = max(largest, v[i]);
  precise float below = s.x - largest;
  float sum = s.x == largest ? s.y : s.y * exp(below);
  [[unroll]] for (uint i = 0u; i < AHEAD * OWN; ++i) {
    precise float below_i = v[i] - largest;
    sum += v[i] == largest ? 1.0 : exp(below_i);
  }
  return vec2(largest, sum);
}
#endif

// Arg-reduce state (key, index); ties take the first or the last. Keys are signed and order like the elements, inverted for a minimum; the
// lowest key at index 0 loses to all others. 64-bit keys take two words.
#if POSITION
#if WIDE_KEYS
#define PLACE(key, i) uvec4(unpackInt2x32(key), i, 0u)
#define KEY_OF(s) packInt2x32(ivec2((s).xy))
#define NUMBER_OF(s) (s).z
#else
#define PLACE(key, i) uvec2(key, i)
#define KEY_OF(s) int((s).x)
#define NUMBER_OF(s) (s).y
#endif
ACCUMULATOR pm_best(ACCUMULATOR s, ACCUMULATOR t) {
  const bool is_same = KEY_OF(t) == KEY_OF(s);
  return KEY_OF(t) > KEY_OF(s) || (is_same && (NUMBER_OF(t) < NUMBER_OF(s)) != LAST) ? t : s;
}
ACCUMULATOR pm_better(ACCUMULATOR s, ACCUMULATOR t) {  // t comes later
  return KEY_OF(t) > KEY_OF(s) || (LAST && KEY_OF(t) == KEY_OF(s)) ? t : s;
}

// Key of a float: zeros are equal, NaN is the largest.
int pm_key(float v) {
  const int bits = floatBitsToInt(pm_settled(v)), magnitude = bits & 0x7fffffff;
  const int key = (bits < 0) != (LEAST == 1) ? -magnitude : magnitude;
  return magnitude > 0x7f800000 ? 0x7fffffff : key;
}

float pm_float_of_key(int key) {
  const bool negative = (key < 0) != (LEAST == 1);
  return intBitsToFloat(abs(key) | (negative ? 1 << 31 : 0));
}

// Whether a later v may replace the best element so far, with a single comparison. True if either is NaN.
#if LEAST
#define MAY_WIN(v, best) (LAST ? !((v) > (best)) : !((v) >= (best)))
#else
#define MAY_WIN(v, best) (LAST ? !((v) < (best)) : !((v) <= (best)))
#endif
#if PM_HAS_FLOAT64
int64_t pm_key(double v) {
  const int64_t magnitude = doubleBitsToInt64(v) & 0x7fffffffffffffffl;
  const int64_t key = (doubleBitsToInt64(v) < 0l) != (LEAST == 1) ? -magnitude : magnitude;
  return magnitude > 0x7ff0000000000000l ? 0x7fffffffffffffffl : key;
}
#endif
#endif

#if COLUMNS && TEAM > 1
shared ACCUMULATOR meeting[EACH * LOCAL_SIZE];
#elif TEAM > 1
#include "include/thread_group.glsl"
shared ACCUMULATOR meeting[LOCAL_SIZE + 16];
PM_GATHER(gather, ACCUMULATOR, meeting, MERGE)
#endif

#define HELD_ELEMENT(e) pm_settled(PICK(v[(e) / OWN], EACH == 1 ? (e) % OWN : j))
#define HELD_NUMBER(e) (min(first + (e) / OWN * TEAM * OWN, end - OWN) + (e) % OWN)

uint place_of(uint element) {
#if ONE_AXIS
  return element * p.reduced_stride[3];
#else
  const uint k = element / p.reduced[3], j = k / p.reduced[2], i = j / p.reduced[1];
  return (element - k * p.reduced[3]) * p.reduced_stride[3] + (k - j * p.reduced[2]) * p.reduced_stride[2] +
         (j - i * p.reduced[1]) * p.reduced_stride[1] + i * p.reduced_stride[0];
#endif
}

#if FLOAT_POSITIONS
// Returns the best element for result j among the loaded ones, from `first` on. Past the end the last elements are repeated.
ACCUMULATOR best_of(HELD_TYPE v[AHEAD], uint j, uint first, uint end) {
  float most = HELD_ELEMENT(0u);
  [[unroll]] for (uint e = 1u; e < AHEAD * OWN; ++e) most = LEAST == 1 ? min(most, HELD_ELEMENT(e)) : max(most, HELD_ELEMENT(e));
  bool has_nan = false;
  ACCUMULATOR s = START;
  [[unroll]] for (uint e = 0u; e < AHEAD * OWN; ++e) {
    const uint in_order = LAST ? e : AHEAD * OWN - 1u - e;
    s.y = HELD_ELEMENT(in_order) == most ? HELD_NUMBER(in_order) : s.y;
    has_nan = (LEAST == 1 ? HELD_ELEMENT(e) >= most : HELD_ELEMENT(e) <= most) ? has_nan : true;
  }
  s.x = pm_key(most);
  if (!has_nan) return s;
  s = START;
  [[unroll]] for (uint e = 0u; e < AHEAD * OWN; ++e) s = STEP(s, HELD_ELEMENT(e), HELD_NUMBER(e));
  return s;
}
#endif

void main() {
  const uint group = grid_group(), id = gl_LocalInvocationID.x;
#if COLUMNS
  const uint blocks = (p.results + TEAMS * EACH - 1u) / (TEAMS * EACH);
  const uint part = group / blocks, result = ((group - part * blocks) * TEAMS + id % TEAMS) * EACH, member = id / TEAMS;
  const bool has_part = part < p.parts && result < p.results;
#else
  const uint unit = group * TEAMS + id / TEAM, result = unit / p.parts, part = unit - result * p.parts, member = id % TEAM;
  const bool has_part = result < p.results;
#endif
  uint rest = result, base = p.x_offset, to = p.y_offset + part * p.part_stride;
  for (int axis = 3; axis >= 0; --axis) {
    const uint at = rest % p.kept[axis];
    base += at * p.kept_stride[axis];
    to += at * p.y_stride[axis];
    rest /= p.kept[axis];
  }
  const uint end = has_part ? min((part + 1u) * p.part_size, p.size) : 0u;
  ACCUMULATOR s[EACH];
  [[unroll]] for (uint j = 0u; j < EACH; ++j) s[j] = START;
#if WIDE == 1
  for (uint element = part * p.part_size + member; element < end; element += TEAM)
    s[0] = STEP(s[0], LOAD(base + place_of(element)), element);
#else
#if FLOAT_POSITIONS
  float best[EACH];
  [[unroll]] for (uint j = 0u; j < EACH; ++j) best[j] = pm_nan;
#endif
  for (uint first = part * p.part_size + member * OWN; first < end; first += AHEAD * TEAM * OWN) {
    HELD_TYPE v[AHEAD];
    [[unroll]] for (uint k = 0u; k < AHEAD; ++k) v[k] = HOLD(base + place_of(min(first + k * TEAM * OWN, end - OWN)));
#if EXPONENTIALS
    [[unroll]] for (uint j = 0u; j < EACH; ++j) {
      float all[AHEAD * OWN];
      [[unroll]] for (uint k = 0u; k < AHEAD; ++k)
        [[unroll]] for (uint i = 0u; i < OWN; ++i)
          all[k * OWN + i] = first + k * TEAM * OWN < end ? PICK(v[k], EACH == 1 ? i : j) : -pm_infinity;
      s[j] = pm_add_exponentials(s[j], all);
    }
#elif FLOAT_POSITIONS
    [[unroll]] for (uint j = 0u; j < EACH; ++j) {  // only few loads contain a better element
#if COLUMNS
      bool found = false;
      [[unroll]] for (uint e = 0u; e < AHEAD * OWN; ++e) found = MAY_WIN(HELD_ELEMENT(e), best[j]) ? true : found;
      if (!found) continue;
#endif
      s[j] = pm_better(s[j], best_of(v, j, first, end));
      best[j] = pm_float_of_key(int(s[j].x));
    }
#else
    [[unroll]] for (uint k = 0u; k < AHEAD; ++k) {
      const uint element = first + k * TEAM * OWN;
      if (element >= end) break;
#if COLUMNS
      [[unroll]] for (uint j = 0u; j < EACH; ++j) s[j] = STEP(s[j], PICK(v[k], j), element);
#else
      [[unroll]] for (uint j = 0u; j < OWN; ++j) s[0] = STEP(s[0], PICK(v[k], j), element + j);
#endif
    }
#endif
  }
#endif
#if TEAM == 1
  for (uint j = 0u; has_part && j < EACH; ++j) STORE(to + j * p.y_stride[3], finished(s[j]));
#elif COLUMNS
  [[unroll]] for (uint j = 0u; j < EACH; ++j) meeting[j * LOCAL_SIZE + id] = s[j];
  barrier();
  if (!has_part || member >= EACH) return;
  const uint mine = member * LOCAL_SIZE + id % TEAMS;  // each of the first invocations of a group finishes a result
  ACCUMULATOR all = meeting[mine];
  for (uint i = 1u; i < TEAM; ++i) all = MERGE(all, meeting[mine + i * TEAMS]);
  STORE(to + member * p.y_stride[3], finished(all));
#else
  const ACCUMULATOR all = gather(s[0]);
  if (has_part && member == 0u) STORE(to, finished(all));
#endif
}

// Reduces up to four (coalesced) axes for each of up to four kept axes: s = START; s = STEP(s, v, i); y = FINISH(s, n).
//
// A result may be split into parts, which a further dispatch reduces. GROUP_THREADS invocations reduce a part; each reads every
// GROUP_THREADS-th element. These invocations are adjacent, unless COLUMNS is set: then adjacent invocations belong to different results.
// VECTOR_WIDTH: a load has 4 or 8 elements of one result, or with COLUMNS one element of each of 4 or 8 results.
//   for each element of this invocation: s = STEP(s, LOAD(...), i)
//   MERGE over GROUP_THREADS (shuffles, shared memory); store FINISH(s, n), or the partial result
// The lowering defines X_TYPE, LOAD(i) (VECTOR_WIDTH: LOAD_TYPE, LOAD_VECTOR(i) and GET_ELEMENT(h, j)), Y_TYPE, STORE(i, v), ACCUMULATOR,
// START, STEP(s, v, i) with the element's index i, MERGE(s, t), FINISH(s, n) of RESULT_TYPE, and RESULT(v), the stored value.
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
#define THREAD_GROUPS (LOCAL_SIZE / GROUP_THREADS)
#if COLUMNS
#define RESULTS_PER_GROUP VECTOR_WIDTH  // number of results per group
#define LOAD_ELEMENTS 1u                // number of elements of a result per load
#else
#define RESULTS_PER_GROUP 1
#define LOAD_ELEMENTS uint(VECTOR_WIDTH)
#endif
#if GROUP_THREADS > 1
#define UNROLL LOAD_UNROLL  // number of loads in flight at once
#else
#define UNROLL 1u
#endif
layout(binding = 0) readonly buffer X { X_TYPE x[]; };
layout(binding = 1) buffer Y { Y_TYPE y[]; };
layout(push_constant) uniform parameter {
  uint results, splits, split_size, split_stride;
  uint size;   // number of elements per result in this dispatch
  uint count;  // total number of elements per result
  uint kept[4], kept_stride[4], y_stride[4];
  uint reduced[4], reduced_stride[4];
  uint x_offset, y_offset;
} p;

RESULT_TYPE finish(ACCUMULATOR s) {
  precise RESULT_TYPE v = FINISH(s, p.count);
  return RESULT(v);
}

// Merges two states of log-sum-exp: (maximum, sum of exponentials relative to it). An element equal to the maximum counts as 1, even if
// infinite; the results are then infinite or NaN.
vec2 pm_merge_exponentials(vec2 s, vec2 t) {
  const float largest = pm_max(s.x, t.x);
  precise float below_s = s.x - largest, below_t = t.x - largest;
  return vec2(largest, (s.x == largest ? s.y : s.y * exp(below_s)) + (t.x == largest ? t.y : t.y * exp(below_t)));
}

// Adds an element to the state.
vec2 pm_add_exponential(vec2 s, float v) {
  precise float distance = v - s.x;
  const float decay = exp(s.x == v ? 0.0 : -abs(distance));
  return vec2(pm_max(s.x, v), v > s.x ? s.y * decay + 1.0 : s.y + decay);
}

#if EXPONENTIALS
// Adds several elements, with one exp() each. NaN propagates.
vec2 pm_add_exponentials(vec2 s, float v[UNROLL * LOAD_ELEMENTS]) {
  float largest = s.x;
  [[unroll]] for (uint i = 0u; i < UNROLL * LOAD_ELEMENTS; ++i) largest = max(largest, v[i]);
  precise float below = s.x - largest;
  float sum = s.x == largest ? s.y : s.y * exp(below);
  [[unroll]] for (uint i = 0u; i < UNROLL * LOAD_ELEMENTS; ++i) {
    precise float below_i = v[i] - largest;
    sum += v[i] == largest ? 1.0 : exp(below_i);
  }
  return vec2(largest, sum);
}
#endif

// Arg-reduce state (key, index); ties go to the first or the last. Keys are signed and order like the elements, inverted for a minimum;
// START has the lowest key at index 0, so it loses to all elements. 64-bit keys take two words.
#if ARG_REDUCE
#if KEYS_64BIT
#define ARG_STATE(key, i) uvec4(unpackInt2x32(key), i, 0u)
#define KEY_OF(s) packInt2x32(ivec2((s).xy))
#define INDEX_OF(s) (s).z
#else
#define ARG_STATE(key, i) uvec2(key, i)
#define KEY_OF(s) int((s).x)
#define INDEX_OF(s) (s).y
#endif
ACCUMULATOR pm_merge_arg_state(ACCUMULATOR s, ACCUMULATOR t) {
  const bool is_same = KEY_OF(t) == KEY_OF(s);
  return KEY_OF(t) > KEY_OF(s) || (is_same && (INDEX_OF(t) < INDEX_OF(s)) != LAST) ? t : s;
}
ACCUMULATOR pm_update_arg_state(ACCUMULATOR s, ACCUMULATOR t) {  // t is the later element
  return KEY_OF(t) > KEY_OF(s) || (LAST && KEY_OF(t) == KEY_OF(s)) ? t : s;
}

// Key of a float: zeros are equal, NaN is the largest.
int pm_key(float v) {
  const int bits = floatBitsToInt(pm_flush_subnormals(v)), magnitude = bits & 0x7fffffff;
  const int key = (bits < 0) != (IS_MIN == 1) ? -magnitude : magnitude;
  return magnitude > 0x7f800000 ? 0x7fffffff : key;
}

float pm_float_of_key(int key) {
  const bool negative = (key < 0) != (IS_MIN == 1);
  return intBitsToFloat(abs(key) | (negative ? 1 << 31 : 0));
}

// Whether a later v may replace the best element so far, with a single comparison. True if either is NaN.
#if IS_MIN
#define MAY_REPLACE(v, best) (LAST ? !((v) > (best)) : !((v) >= (best)))
#else
#define MAY_REPLACE(v, best) (LAST ? !((v) < (best)) : !((v) <= (best)))
#endif
#if PM_HAS_FLOAT64
int64_t pm_key(double v) {
  const int64_t magnitude = doubleBitsToInt64(v) & 0x7fffffffffffffffl;
  const int64_t key = (doubleBitsToInt64(v) < 0l) != (IS_MIN == 1) ? -magnitude : magnitude;
  return magnitude > 0x7ff0000000000000l ? 0x7fffffffffffffffl : key;
}
#endif
#endif

#if COLUMNS && GROUP_THREADS > 1
shared ACCUMULATOR reduce_buffer[RESULTS_PER_GROUP * LOCAL_SIZE];
#elif GROUP_THREADS > 1
#include "include/thread_group.glsl"
shared ACCUMULATOR reduce_buffer[LOCAL_SIZE + 16];
PM_DEFINE_GROUP_REDUCE(reduce_group, ACCUMULATOR, reduce_buffer, MERGE)
#endif

#define LOADED_ELEMENT(e) pm_flush_subnormals(GET_ELEMENT(v[(e) / LOAD_ELEMENTS], RESULTS_PER_GROUP == 1 ? (e) % LOAD_ELEMENTS : j))
#define LOADED_INDEX(e) (min(first + (e) / LOAD_ELEMENTS * GROUP_THREADS * LOAD_ELEMENTS, end - LOAD_ELEMENTS) + (e) % LOAD_ELEMENTS)

uint element_offset(uint element) {
#if ONE_AXIS
  return element * p.reduced_stride[3];
#else
  const uint k = element / p.reduced[3], j = k / p.reduced[2], i = j / p.reduced[1];
  return (element - k * p.reduced[3]) * p.reduced_stride[3] + (k - j * p.reduced[2]) * p.reduced_stride[2] +
         (j - i * p.reduced[1]) * p.reduced_stride[1] + i * p.reduced_stride[0];
#endif
}

#if FLOAT_ARG_REDUCE
// Returns the best element for result j among the loaded ones, which start at `first`. Past the end, the last elements are repeated.
ACCUMULATOR best_loaded(LOAD_TYPE v[UNROLL], uint j, uint first, uint end) {
  float best_value = LOADED_ELEMENT(0u);
  [[unroll]] for (uint e = 1u; e < UNROLL * LOAD_ELEMENTS; ++e) best_value = IS_MIN == 1 ? min(best_value, LOADED_ELEMENT(e)) : max(best_value, LOADED_ELEMENT(e));
  bool has_nan = false;
  ACCUMULATOR s = START;
  [[unroll]] for (uint e = 0u; e < UNROLL * LOAD_ELEMENTS; ++e) {
    const uint in_order = LAST ? e : UNROLL * LOAD_ELEMENTS - 1u - e;
    s.y = LOADED_ELEMENT(in_order) == best_value ? LOADED_INDEX(in_order) : s.y;
    has_nan = (IS_MIN == 1 ? LOADED_ELEMENT(e) >= best_value : LOADED_ELEMENT(e) <= best_value) ? has_nan : true;
  }
  s.x = pm_key(best_value);
  if (!has_nan) return s;
  s = START;
  [[unroll]] for (uint e = 0u; e < UNROLL * LOAD_ELEMENTS; ++e) s = STEP(s, LOADED_ELEMENT(e), LOADED_INDEX(e));
  return s;
}
#endif

void main() {
  const uint group = grid_group(), id = gl_LocalInvocationID.x;
#if COLUMNS
  const uint blocks = (p.results + THREAD_GROUPS * RESULTS_PER_GROUP - 1u) / (THREAD_GROUPS * RESULTS_PER_GROUP);
  const uint split = group / blocks, result = ((group - split * blocks) * THREAD_GROUPS + id % THREAD_GROUPS) * RESULTS_PER_GROUP, thread_in_group = id / THREAD_GROUPS;
  const bool has_split = split < p.splits && result < p.results;
#else
  const uint work_item = group * THREAD_GROUPS + id / GROUP_THREADS, result = work_item / p.splits, split = work_item - result * p.splits, thread_in_group = id % GROUP_THREADS;
  const bool has_split = result < p.results;
#endif
  uint rest = result, base = p.x_offset, to = p.y_offset + split * p.split_stride;
  for (int axis = 3; axis >= 0; --axis) {
    const uint at = rest % p.kept[axis];
    base += at * p.kept_stride[axis];
    to += at * p.y_stride[axis];
    rest /= p.kept[axis];
  }
  const uint end = has_split ? min((split + 1u) * p.split_size, p.size) : 0u;
  ACCUMULATOR s[RESULTS_PER_GROUP];
  [[unroll]] for (uint j = 0u; j < RESULTS_PER_GROUP; ++j) s[j] = START;
#if VECTOR_WIDTH == 1
  for (uint element = split * p.split_size + thread_in_group; element < end; element += GROUP_THREADS)
    s[0] = STEP(s[0], LOAD(base + element_offset(element)), element);
#else
#if FLOAT_ARG_REDUCE
  float best[RESULTS_PER_GROUP];
  [[unroll]] for (uint j = 0u; j < RESULTS_PER_GROUP; ++j) best[j] = pm_nan;
#endif
  for (uint first = split * p.split_size + thread_in_group * LOAD_ELEMENTS; first < end; first += UNROLL * GROUP_THREADS * LOAD_ELEMENTS) {
    LOAD_TYPE v[UNROLL];
    [[unroll]] for (uint k = 0u; k < UNROLL; ++k) v[k] = LOAD_VECTOR(base + element_offset(min(first + k * GROUP_THREADS * LOAD_ELEMENTS, end - LOAD_ELEMENTS)));
#if EXPONENTIALS
    [[unroll]] for (uint j = 0u; j < RESULTS_PER_GROUP; ++j) {
      float all[UNROLL * LOAD_ELEMENTS];
      [[unroll]] for (uint k = 0u; k < UNROLL; ++k)
        [[unroll]] for (uint i = 0u; i < LOAD_ELEMENTS; ++i)
          all[k * LOAD_ELEMENTS + i] = first + k * GROUP_THREADS * LOAD_ELEMENTS < end ? GET_ELEMENT(v[k], RESULTS_PER_GROUP == 1 ? i : j) : -pm_infinity;
      s[j] = pm_add_exponentials(s[j], all);
    }
#elif FLOAT_ARG_REDUCE
    [[unroll]] for (uint j = 0u; j < RESULTS_PER_GROUP; ++j) {  // few loads contain a better element
#if COLUMNS
      bool found = false;
      [[unroll]] for (uint e = 0u; e < UNROLL * LOAD_ELEMENTS; ++e) found = MAY_REPLACE(LOADED_ELEMENT(e), best[j]) ? true : found;
      if (!found) continue;
#endif
      s[j] = pm_update_arg_state(s[j], best_loaded(v, j, first, end));
      best[j] = pm_float_of_key(int(s[j].x));
    }
#else
    [[unroll]] for (uint k = 0u; k < UNROLL; ++k) {
      const uint element = first + k * GROUP_THREADS * LOAD_ELEMENTS;
      if (element >= end) break;
#if COLUMNS
      [[unroll]] for (uint j = 0u; j < RESULTS_PER_GROUP; ++j) s[j] = STEP(s[j], GET_ELEMENT(v[k], j), element);
#else
      [[unroll]] for (uint j = 0u; j < LOAD_ELEMENTS; ++j) s[0] = STEP(s[0], GET_ELEMENT(v[k], j), element + j);
#endif
    }
#endif
  }
#endif
#if GROUP_THREADS == 1
  for (uint j = 0u; has_split && j < RESULTS_PER_GROUP; ++j) STORE(to + j * p.y_stride[3], finish(s[j]));
#elif COLUMNS
  [[unroll]] for (uint j = 0u; j < RESULTS_PER_GROUP; ++j) reduce_buffer[j * LOCAL_SIZE + id] = s[j];
  barrier();
  if (!has_split || thread_in_group >= RESULTS_PER_GROUP) return;
  // each of the first invocations of a group finishes a result
  const uint first_partial = thread_in_group * LOCAL_SIZE + id % THREAD_GROUPS;
  ACCUMULATOR all = reduce_buffer[first_partial];
  for (uint i = 1u; i < GROUP_THREADS; ++i) all = MERGE(all, reduce_buffer[first_partial + i * THREAD_GROUPS]);
  STORE(to + thread_in_group * p.y_stride[3], finish(all));
#else
  const ACCUMULATOR all = reduce_group(s[0]);
  if (has_split && thread_in_group == 0u) STORE(to, finish(all));
#endif
}

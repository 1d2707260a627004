// Random numbers (Philox, include/random.glsl). The state is a key and a run number, two words each; `stream` distinguishes the nodes of a
// program.
//
// KIND 0: low + u * range with 0 <= u < 1 (doubles: in steps of 2^-53); 1: normal with mean `low` and deviation `range` (doubles: computed
// in float32); 2: true with probability x, one for all elements (P_STEP 0) or one per element; 3: the state of a new sequence, derived from
// the state and `number`. NODE_KEY: the key belongs to the node (its attribute `seed`).
// An invocation computes one Philox block: four elements, or two doubles.
//
// For all devices. Selected in cpp/operators/random/random.cpp.
#version 450
#include "include/grid.glsl"
#include "include/random.glsl"
#include "include/tensor.glsl"
layout(local_size_x = LOCAL_SIZE) in;
layout(binding = 0) readonly buffer State { uint state[]; };
#if KIND == 2
layout(binding = 1) readonly buffer P { X_TYPE x[]; };
layout(binding = 2) writeonly buffer Y { uint y[]; };
#elif KIND == 3
layout(binding = 1) readonly buffer N { uint number[]; };
layout(binding = 2) writeonly buffer Y { uint y[]; };
#else
layout(binding = 1) writeonly buffer Y { Y_TYPE y[]; };
#endif
layout(push_constant) uniform parameter {
  uint elements;
  uint stream;
#if NODE_KEY
  uint key[2];
#endif
#if KIND < 2
  float low, range;
#endif
  uint state_offset;
#if KIND == 2
  uint x_offset;
#elif KIND == 3
  uint number_offset;
#endif
  uint y_offset;
} p;

uvec4 philox_block(uint block) {
#if NODE_KEY
  const uvec2 key = uvec2(p.key[0], p.key[1]);
#else
  const uvec2 key = uvec2(state[p.state_offset], state[p.state_offset + 1u]);
#endif
  return pm_philox(uvec4(block, state[p.state_offset + 2u], state[p.state_offset + 3u], p.stream), key);
}

#if KIND < 2
REAL scale_sample(REAL v) {
  precise REAL y = REAL(p.low) + v * REAL(p.range);
  return y;
}
#endif

void main() {
  const uint block = grid_invocation();
  const uint i = block * BLOCK;
  if (i >= p.elements) return;
#if KIND == 3
  const uvec4 next = philox_block(number[p.number_offset]);
  for (uint k = 0u; k < 4u; ++k) y[p.y_offset + k] = next[k];
#else
  const uvec4 words = philox_block(block);
#if KIND == 2
  uint flags = 0u;
  for (uint k = 0u; k < 4u && i + k < p.elements; ++k) {
    const float probability = LOAD(p.x_offset + P_STEP * (i + k));
    if (pm_uniform(words[k]) < probability) flags |= 1u << 8u * k;
  }
  y[(p.y_offset + i) >> 2] = flags;
#elif DOUBLE
#if KIND == 1
  const vec2 v = pm_normal(words.x, words.y);
#else
  const dvec2 v = (dvec2(words.xz >> 5) * 67108864.0 + dvec2(words.yw >> 6)) * 1.1102230246251565404e-16LF;
#endif
  for (uint k = 0u; k < 2u && i + k < p.elements; ++k) y[p.y_offset + i + k] = scale_sample(REAL(v[k]));
#else
#if KIND == 1
  const vec4 v = vec4(pm_normal(words.x, words.y), pm_normal(words.z, words.w));
#else
  const vec4 v = vec4(pm_uniform(words.x), pm_uniform(words.y), pm_uniform(words.z), pm_uniform(words.w));
#endif
#if PM_GRAIN == 2
  for (uint k = 0u; k < 4u && i + k < p.elements; k += 2u) pm_store2(y, p.y_offset + i + k, scale_sample(v[k]), scale_sample(v[k + 1u]));
#else
  for (uint k = 0u; k < 4u && i + k < p.elements; ++k) y[p.y_offset + i + k] = scale_sample(v[k]);
#endif
#endif
#endif
}

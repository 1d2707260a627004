// Writes a contiguous tensor of any element type. BITS: size of an element, 8 to 128; with SCALE > 1, it comprises SCALE elements of the
// tensor. An invocation writes PIECES words, or PIECES elements if BITS is 64 or more. Before including this file, define the parameter
// block `p` with elements and y_offset; after it, define element().
// PARTS: the dispatch writes a range of the tensor that starts at element p.first_output; 1 overwrites it, 2 ORs the result into the
// existing bits.
#include "include/grid.glsl"
#include "include/tensor.glsl"
layout(local_size_x = LOCAL_SIZE) in;
#if BITS == 128
#define ELEMENT uvec4
#elif BITS == 64
#define ELEMENT uvec2
#else
#define ELEMENT uint
#endif
#if BITS == 16
#define LOAD(x, i) pm_load_u16(x, i)
#elif BITS == 8
#define LOAD(x, i) pm_load_u8(x, i)
#else
#define LOAD(x, i) x[i]
#endif
#define PER_WORD (BITS < 32 ? 32u / uint(BITS) : 1u)
#if PARTS == 2
layout(binding = 0) buffer Y { ELEMENT y[]; };
#define STORE_ELEMENT(i, v) y[i] |= v
#else
layout(binding = 0) writeonly buffer Y { ELEMENT y[]; };
#define STORE_ELEMENT(i, v) y[i] = v
#endif
#if PARTS
#define ELEMENT_INDEX(i) (p.first_output + (i))
#else
#define ELEMENT_INDEX(i) (i)
#endif

ELEMENT element(uint id);

ELEMENT compute_word(uint first) {
#if BITS >= 32
  return element(ELEMENT_INDEX(first));
#else
  uint word = 0u;
  for (uint i = 0u; i < PER_WORD; ++i) word |= element(ELEMENT_INDEX(min(first + i, p.elements - 1u))) << i * uint(BITS);
  return word;
#endif
}

void main() {
  const uint group = grid_group();
  const uint first = group * PIECES * gl_WorkGroupSize.x + gl_LocalInvocationID.x, pieces = (p.elements - 1u) / PER_WORD + 1u;
  // Load everything before the first store, so that the loads overlap.
  ELEMENT computed[PIECES];
  for (uint k = 0u; k < PIECES; ++k) computed[k] = compute_word(min(first + k * gl_WorkGroupSize.x, pieces - 1u) * PER_WORD);
  for (uint k = 0u; k < PIECES; ++k)
    if (first + k * gl_WorkGroupSize.x < pieces) STORE_ELEMENT(p.y_offset / (PER_WORD * SCALE) + first + k * gl_WorkGroupSize.x, computed[k]);
}

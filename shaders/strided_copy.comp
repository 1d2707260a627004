// Copies elements between strided tensors of the same (coalesced) shape: transposes, slices, concatenation, broadcasts, padding,
// DepthToSpace.
//
// BITS: size of an element as moved (8 to 128), which is SCALE neighbouring elements of the tensor. One store writes a piece:
//   ELEMENTS_PER_STORE contiguous elements of the target, a power of two. Bit b of an element's index within the piece advances the source
//   by
//   step[b]; with PAD the elements are neighbours on the last axis.
//   WORDS: one word of a dense target, whose elements are located one by one; the last word may be partial.
// Pieces below 32 bits are stored atomically. p.elements, size and the strides of the target count elements with WORDS, otherwise pieces.
// PAD: elements outside the source are a constant (1), reflected (2), the edge (3), wrapped (4) or reflected including the edge (5).
// An invocation moves PIECES pieces that are a workgroup size apart; all loads precede the first store.
//
// For all devices. Selected in cpp/operators/index/data_movement.cpp and cpp/operators/common/strided_copy.cpp.
#version 450
#include "include/grid.glsl"
#include "include/tensor.glsl"
layout(local_size_x = LOCAL_SIZE) in;
#define PIECE_BITS (BITS * ELEMENTS_PER_STORE)
#if BITS == 128
#define ELEMENT uvec4
#elif BITS == 64
#define ELEMENT uvec2
#else
#define ELEMENT uint
#endif
#if PIECE_BITS == 128
#define PIECE uvec4
#elif PIECE_BITS == 64
#define PIECE uvec2
#else
#define PIECE uint
#endif
layout(binding = 0) readonly buffer X { ELEMENT x[]; };
layout(binding = 1) buffer Y { PIECE y[]; };
layout(push_constant) uniform parameter {
  uint elements;
  uint size[RANK];
  int x_stride[RANK];  // strides in elements; negative for slices that run backwards
  uint y_stride[RANK];
#if PAD
  int x_size[RANK];
  int before[RANK];    // padding before the source; negative if cropped
  uint value[2];       // padding value
#else
  int x_first;         // source element at index 0
  uint y_first;
#if STEPS
  int step[STEPS];
#endif
#endif
  uint x_offset, y_offset;
} p;

#if PAD
// Maps an index outside the source to the index of the element that it repeats.
int padded_index(int i, int size) {
#if PAD == 2
  if (size < 2) return 0;
  i = abs(i) % (2 * (size - 1));
  return size - 1 - abs(size - 1 - i);
#elif PAD == 4
  return i < 0 ? size - 1 - (-1 - i) % size : i % size;  // the result of % is undefined for negative numbers
#elif PAD == 5
  i = (i < 0 ? -1 - i : i) % (2 * size);
  return i < size ? i : 2 * size - 1 - i;
#else
  return clamp(i, 0, size - 1);
#endif
}
#endif

// Computes the source and target positions of element `lane` of piece `flat_index`. Returns false if the element is the padding constant.
bool find_offsets(uint flat_index, uint lane, out uint from, out uint to) {
#if PAD
  int source = 0;
  uint target = 0u;
#else
  int source = p.x_first;
  uint target = p.y_first;
#endif
  bool found = true;
  for (int axis = RANK - 1; axis >= 0; --axis) {
    const uint rest = axis > 0 ? flat_index / p.size[axis] : 0u, at = flat_index - rest * p.size[axis];
    flat_index = rest;
    target += at * p.y_stride[axis];
#if PAD
    const int i = int(axis == RANK - 1 ? at * ELEMENTS_PER_STORE + lane : at) - p.before[axis], size = p.x_size[axis];
#if PAD == 1
    found = found && i >= 0 && i < size;
#endif
    source += padded_index(i, size) * p.x_stride[axis];
#else
    source += int(at) * p.x_stride[axis];
#endif
  }
  from = p.x_offset / SCALE + uint(source);
  to = p.y_offset / (SCALE * ELEMENTS_PER_STORE) + target;
  return found;
}

ELEMENT element(bool found, uint i) {
#if PAD == 1
  if (!found) {
#if BITS == 128
    return uvec4(p.value[0], p.value[1], p.value[0], p.value[1]);
#elif BITS == 64
    return uvec2(p.value[0], p.value[1]);
#else
    return bitfieldExtract(p.value[0], 0, BITS);
#endif
  }
#endif
#if BITS == 16
  return pm_load_u16(x, i);
#elif BITS == 8
  return pm_load_u8(x, i);
#else
  return x[i];
#endif
}

#if WORDS
PIECE load_piece(uint id, out uint to) {
  const uint lanes = 32u / uint(BITS);
  uint word = 0u;
  for (uint i = 0u; i < lanes; ++i) {
    uint from, target;
    const bool found = find_offsets(min(id * lanes + i, p.elements - 1u), 0u, from, target);
    if (i == 0u) to = target / lanes;
    word |= element(found, from) << i * uint(BITS);
  }
  return word;
}
#elif ELEMENTS_PER_STORE > 1
PIECE load_piece(uint id, out uint to) {
  ELEMENT values[ELEMENTS_PER_STORE];
#if PAD
  for (uint i = 0u; i < uint(ELEMENTS_PER_STORE); ++i) {
    uint from;
    const bool found = find_offsets(id, i, from, to);
    values[i] = element(found, from);
  }
#else
  uint first;
  find_offsets(id, 0u, first, to);
  for (uint i = 0u; i < uint(ELEMENTS_PER_STORE); ++i) {
    uint from = first;
    for (uint b = 0u; b < uint(STEPS); ++b)
      if ((i >> b & 1u) != 0u) from += uint(p.step[b]);
    values[i] = element(true, from);
  }
#endif
#if BITS == 64
  return uvec4(values[0], values[1]);
#else
  uint words[PIECE_BITS / 32];
  for (uint i = 0u; i < uint(PIECE_BITS / 32); ++i) words[i] = 0u;
  for (uint i = 0u; i < uint(ELEMENTS_PER_STORE); ++i) words[i * uint(BITS) >> 5] |= values[i] << (i * uint(BITS) & 31u);
#if PIECE_BITS == 128
  return uvec4(words[0], words[1], words[2], words[3]);
#elif PIECE_BITS == 64
  return uvec2(words[0], words[1]);
#else
  return words[0];
#endif
#endif
}
#else
PIECE load_piece(uint id, out uint to) {
  uint from;
  const bool found = find_offsets(id, 0u, from, to);
  return element(found, from);
}
#endif

void main() {
  const uint group = grid_group();
  const uint first = group * PIECES * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
#if WORDS
  const uint pieces = (p.elements - 1u) / (32u / uint(BITS)) + 1u;
#else
  const uint pieces = p.elements;
#endif
  // Load everything before the first store, so that the loads overlap.
  PIECE loaded[PIECES];
  uint to[PIECES];
  for (uint k = 0u; k < PIECES; ++k) loaded[k] = load_piece(min(first + k * gl_WorkGroupSize.x, pieces - 1u), to[k]);
  for (uint k = 0u; k < PIECES; ++k) {
    if (first + k * gl_WorkGroupSize.x < pieces) {
#if PIECE_BITS >= 32 || WORDS
      y[to[k]] = loaded[k];
#elif BITS == 16
      pm_store_u16(y, to[k], loaded[k]);
#else
      pm_store_u8(y, to[k], loaded[k]);
#endif
    }
  }
}

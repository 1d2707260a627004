// Index arithmetic of gather and scatter.
// RANK 0: a tuple of TUPLE indices selects `inner` elements (Gather, GatherND, ScatterND). RANK > 0: each element has its own index on one
// axis and keeps its coordinates on all other axes (GatherElements, ScatterElements).
// OUTER: x is a batch of slices that are `outer_stride` apart; each index selects within its slice.
layout(push_constant) uniform parameter {
  uint elements, index_words;
#if RANK
  uint size[RANK];
  uint stride[RANK];  // stride is 0 on the indexed axis
#else
  uint inner;
#if OUTER
  uint addresses;     // number of index tuples; rows after the last tuple start over at the first
  uint outer_rows;    // number of rows per slice of x
  uint outer_stride;
#endif
#endif
  uint index_size[TUPLE], index_stride[TUPLE];
#if PARTS
  uint first_output;                  // first element that this dispatch computes
  uint first_offset, num_offsets;     // range of the indexed tensor that is bound
#endif
  uint x_offset, y_offset, indices_offset;
} p;
#include "include/indices.glsl"

// Computes the offset of element `id` in the indexed tensor. Returns false if an index is out of range; that index counts as 0.
bool find_offset(uint id, out uint offset) {
#if RANK
  const uint address = id;
  uint rest = id;
  offset = 0u;
  for (int axis = RANK - 1; axis >= 0; --axis) {
    offset += rest % p.size[axis] * p.stride[axis];
    rest /= p.size[axis];
  }
#else
  const uint row = id / p.inner;
  offset = id - row * p.inner;
#if OUTER
  const uint address = row % p.addresses;
  offset += row / p.outer_rows * p.outer_stride;
#else
  const uint address = row;
#endif
#endif
  bool found = true;
  for (uint k = 0u; k < TUPLE; ++k) {
    const int at = index_at(address * TUPLE + k, int(p.index_size[k]));
    found = found && at >= 0;
    offset += uint(max(at, 0)) * p.index_stride[k];
  }
  return found;
}

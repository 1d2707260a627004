// The element of a tensor that indices name: what a gather reads, what a scatter writes.
// RANK 0: rows of `inner` elements have an address of TUPLE indices each (Gather, GatherND, ScatterND). Else every element has one index
// of its own, and on the other axes a place by strides (GatherElements, ScatterElements).
// OUTER: the addressed tensor is several, one after the other.
layout(push_constant) uniform parameter {
  uint elements, index_words;
#if RANK
  uint size[RANK];
  uint stride[RANK];  // 0 on the axis of the index
#else
  uint inner;
#if OUTER
  uint addresses;     // addresses in all; rows begin again with the first
  uint outer_rows;    // rows until the addressed tensor moves on by outer_stride
  uint outer_stride;
#endif
#endif
  uint index_size[TUPLE], index_stride[TUPLE];
#if PARTS
  uint first_made;              // the first element that is made here
  uint first_place, places;     // the addressed tensor's elements that are bound
#endif
  uint x_offset, y_offset, indices_offset;
} p;
#include "include/indices.glsl"

// Finds the place that indices name. False where an index is out of range, which then counts as 0.
bool find_place(uint id, out uint place) {
#if RANK
  const uint address = id;
  uint rest = id;
  place = 0u;
  for (int axis = RANK - 1; axis >= 0; --axis) {
    place += rest % p.size[axis] * p.stride[axis];
    rest /= p.size[axis];
  }
#else
  const uint row = id / p.inner;
  place = id - row * p.inner;
#if OUTER
  const uint address = row % p.addresses;
  place += row / p.outer_rows * p.outer_stride;
#else
  const uint address = row;
#endif
#endif
  bool found = true;
  for (uint k = 0u; k < TUPLE; ++k) {
    const int at = index_at(address * TUPLE + k, int(p.index_size[k]));
    found = found && at >= 0;
    place += uint(max(at, 0)) * p.index_stride[k];
  }
  return found;
}

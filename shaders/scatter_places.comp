// Finds where each update of a scatter goes, as a number that sorts: y[id], or NOWHERE for an index that is out of range.
#version 450
#include "include/grid.glsl"
#include "include/tensor.glsl"
#include "include/indexed.glsl"
layout(local_size_x = LOCAL_SIZE) in;
layout(binding = 0) writeonly buffer Y { uint y[]; };
void main() {
  const uint id = grid_invocation();
  uint place;
  if (id >= p.elements) return;
  const bool found = find_place(id, place);
  y[p.y_offset + id] = found ? place : NOWHERE;
}

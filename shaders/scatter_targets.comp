// Computes the target index of each update of a scatter, as a sortable number: y[id], or INVALID_TARGET for an index out of range.
//
// First dispatch of a deterministic scatter; the updates are then sorted for scatter_sorted. One invocation per update. For all devices;
// selected in cpp/operators/index/gather_scatter.cpp.
#version 450
#include "include/grid.glsl"
#include "include/tensor.glsl"
#include "include/gather_scatter.glsl"
layout(local_size_x = LOCAL_SIZE) in;
layout(binding = 0) writeonly buffer Y { uint y[]; };
void main() {
  const uint id = grid_invocation();
  uint target;
  if (id >= p.elements) return;
  const bool found = find_offset(id, target);
  y[p.y_offset + id] = found ? target : INVALID_TARGET;
}

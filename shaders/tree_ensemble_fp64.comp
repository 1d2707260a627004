// Decision trees in double, with thresholds and weights that have two words: see tree_ensemble.comp and include/tree_ensemble.glsl.
//
// Requires shaderFloat64. Selected in cpp/operators/ml/tree_ensemble.cpp.
#version 450
#include "include/grid.glsl"
layout(local_size_x = 64) in;
layout(push_constant) uniform parameter {
  uint elements, features, targets;
  uint trees, depth, node_count, entry_count;
  uint x_offset, nodes_offset, entries_offset, roots_offset, y_offset;
} p;
layout(binding = 0) writeonly buffer Y { double y[]; };
layout(binding = 1) readonly buffer X { double x[]; };
#define NUMBER double
#define WORDS 2u
#define FEATURE(i) x[i]
#define NUMBER_AT(words, i) packDouble2x32(uvec2(words[i], words[(i) + 1u]))
#define IS_NAN(v) ((unpackDouble2x32(v).y & 0x7fffffffu | uint(unpackDouble2x32(v).x != 0u)) > 0x7ff00000u)
#include "include/tree_ensemble.glsl"

void main() {
  const uint id = grid_invocation();
  if (id < p.elements) y[p.y_offset + id] = evaluate_trees(id);
}

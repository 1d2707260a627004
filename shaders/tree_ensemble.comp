// Decision trees in float: sums or other folds of the leaf values per target, for each row of x. See include/tree_ensemble.glsl for the
// tables.
//
// x: [rows, features]; y: [rows, targets], dense. One invocation computes one element (or the elements of a word), walking all trees.
// For all devices. Selected in cpp/operators/ml/tree_ensemble.cpp.
#version 450
layout(push_constant) uniform parameter {
  uint elements, features, targets;
  uint trees, depth, node_count, entry_count;
  uint x_offset, nodes_offset, entries_offset, roots_offset, y_offset;
} p;
#include "include/contiguous_float_output.glsl"
layout(binding = 1) readonly buffer X { sfp x[]; };
#define NUMBER float
#define WORDS 1u
#define FEATURE(i) pm_load(x, i)
#define NUMBER_AT(words, i) uintBitsToFloat(words[i])
#define IS_NAN(v) pm_isnan(v)
#include "include/tree_ensemble.glsl"

float element(uint id) {
  return evaluate_trees(id);
}

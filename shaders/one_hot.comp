// OneHot: y[outer, d, inner] = values[indices[outer, inner] == d ? 1 : 0]. An index out of range matches no d.
//
// See include/indices.glsl for indices and include/contiguous_output.glsl for y. For all devices; selected in
// cpp/operators/index/fill_operators.cpp.
#version 450
layout(push_constant) uniform parameter {
  uint elements, depth, inner;
  uint index_words;
  uint indices_offset, values_offset, y_offset;
} p;
#include "include/contiguous_output.glsl"
#include "include/indices.glsl"
layout(binding = 2) readonly buffer V { ELEMENT values[]; };

ELEMENT element(uint id) {
  const uint row = id / p.inner;
  const int at = index_at(row / p.depth * p.inner + id % p.inner, int(p.depth));
  return LOAD(values, p.values_offset + (at == int(row % p.depth) ? 1u : 0u));
}

// Trilu: keeps the upper or lower triangle of matrices, from diagonal `k`; everything else is 0.
//
// See include/contiguous_output.glsl for y. For all devices; selected in cpp/operators/index/fill_operators.cpp.
#version 450
layout(push_constant) uniform parameter {
  uint elements, rows, columns;
  int k;
  uint upper;
  uint x_offset, y_offset;
} p;
#include "include/contiguous_output.glsl"
layout(binding = 1) readonly buffer X { ELEMENT x[]; };

ELEMENT element(uint id) {
  const int diagonal = int(id % p.columns) - int(id / p.columns % p.rows);
  const bool kept = p.upper != 0u ? diagonal >= p.k : diagonal <= p.k;
  return kept ? LOAD(x, p.x_offset + id) : ELEMENT(0);
}

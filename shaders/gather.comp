// y[id] = x[the element that indices name], for elements of 8 to 128 bits. An index out of range counts as 0: the host cannot know it
// here.
#version 450
#include "include/indexed.glsl"
#include "include/dense.glsl"
layout(binding = 2) readonly buffer X { ELEMENT x[]; };

ELEMENT element(uint id) {
  uint place;
  find_place(id, place);
  return LOAD(x, p.x_offset / SCALE + place);
}

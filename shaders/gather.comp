// y[id] = x[the element that indices name], for elements of 8 to 128 bits. An index out of range counts as 0: the host cannot know it here.
// PARTS: only a part of x is bound; an element elsewhere is left to the dispatch that binds its part.
#version 450
#include "include/indexed.glsl"
#include "include/dense.glsl"
layout(binding = 2) readonly buffer X { ELEMENT x[]; };

ELEMENT element(uint id) {
  uint place;
  find_place(id, place);
#if PARTS
  place -= p.first_place;  // far past the last where it lies before the first
  if (place >= p.places) return ELEMENT(0);
#endif
  return LOAD(x, p.x_offset / SCALE + place);
}

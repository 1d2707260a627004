// Writes a contiguous tensor of floats; each invocation computes the elements of one word. Before including this file, define the parameter
// block `p` with elements and y_offset; after it, define element(). EPILOGUE(x): the fused expression.
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/epilogue.glsl"
#include "include/tensor.glsl"
layout(local_size_x = 64) in;
layout(binding = 0) writeonly buffer Y { sfp y[]; };

float element(uint id);

void main() {
  const uint id = grid_invocation();
#if PM_GRAIN == 2
  const uint i = id * 2u;
  if (i >= p.elements) return;
  const float a = element(i), b = i + 1u < p.elements ? element(i + 1u) : 0.0;
  pm_store2(y, p.y_offset + i, epilogue(a), epilogue(b));
#else
  if (id >= p.elements) return;
  const float v = element(id);
  pm_store(y, p.y_offset + id, epilogue(v));
#endif
}

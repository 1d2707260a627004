// Initial states of a recurrent layer: hidden states, starting at `first`, and the cells of an LSTM, starting at `second`; both are copied
// from inputs or zero.
//
// state: float, rows of `width` elements, zero past `units`. The lowering defines these macros:
//   DECLARATIONS, OFFSETS  the bindings of the tensors, and their offsets;
//   FIRST, SECOND the element of the respective tensor for unit `unit` of sequence `b` in direction `d`.
// One invocation writes one element. For all devices; selected in cpp/operators/recurrent/recurrent_states.cpp.
#version 450
#include "include/grid.glsl"
#include "include/tensor.glsl"
layout(local_size_x = 64) in;
layout(binding = 0) writeonly buffer State { float state[]; };
DECLARATIONS
layout(push_constant) uniform parameter {
  uint elements, elements_per_state;  // number of elements of all states; of each state
  uint first, second, width, units, batch;
  uint stride_d, stride_b;  // strides of the initial states
  OFFSETS
} p;
void main() {
  const uint i = grid_invocation();
  if (i >= p.elements) return;
  const bool is_first = i < p.elements_per_state;
  const uint element = is_first ? i : i - p.elements_per_state, unit = element % p.width, row = element / p.width, d = row / p.batch, b = row % p.batch;
  float v = 0.0;
  if (unit < p.units) {
    if (is_first)
      v = FIRST;
    else
      v = SECOND;
  }
  state[(is_first ? p.first : p.second) + element] = v;
}

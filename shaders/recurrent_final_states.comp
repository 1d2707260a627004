// Final states of a recurrent layer as outputs: the hidden states start at `first` in the state buffer, the cells of an LSTM at `second`.
//
// The lowering defines these macros:
//   DECLARATIONS, OFFSETS  the bindings of the tensors, and their offsets;
//   FIRST, SECOND statements that store `v` in the respective tensor, for unit `unit` of sequence `b` in direction `d`.
// One invocation copies one element. For all devices; selected in cpp/operators/recurrent/recurrent_states.cpp.
#version 450
#include "include/grid.glsl"
#include "include/tensor.glsl"
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer State { float state[]; };
DECLARATIONS
layout(push_constant) uniform parameter {
  uint elements, elements_per_state;  // number of elements of all states; of each state
  uint first, second, width, units, batch;
  uint stride_d, stride_b;  // strides of the outputs
  OFFSETS
} p;
void main() {
  const uint i = grid_invocation();
  if (i >= p.elements) return;
  const bool is_first = i < p.elements_per_state;
  const uint element = is_first ? i : i - p.elements_per_state, unit = element % p.units, row = element / p.units, d = row / p.batch, b = row % p.batch;
  const float v = state[(is_first ? p.first : p.second) + row * p.width + unit];
  if (is_first) {
    FIRST
  } else {
    SECOND
  }
}

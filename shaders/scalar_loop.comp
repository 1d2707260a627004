// A WHILE over a few 32-bit values, run by one invocation: up to `steps` iterations per dispatch; the next dispatch continues.
//
// words: the values, then the number of iterations and of rounds so far. A round stores its status in one of two slots that the host reads
// alternately. The lowering defines these macros:
//   LOAD       declares the values s0, s1, ... from the words;   STORE  writes the changed values back;
//   CONDITION  sets `continues` from them;                           BODY   computes the next values;
//   VALUES     is the number of values.
//
// For all devices. Selected in cpp/graph/control_flow/scalar_loop.cpp.
#version 450
#include "include/math.glsl"
layout(local_size_x = 1) in;
layout(binding = 0) buffer Words { uint words[]; };
layout(binding = 1) writeonly buffer Status { uint status[]; };
layout(push_constant) uniform parameter { uint steps; } p;
void main() {
  LOAD
  bool continues = true;
  uint trips = 0u;
  for (; trips < p.steps; ++trips) {
    CONDITION
    if (!continues) break;
    BODY
  }
  STORE
  const uint total = words[VALUES] + trips, round = words[VALUES + 1u];
  words[VALUES] = total;
  words[VALUES + 1u] = round + 1u;
  status[(round & 1u) * 2u] = continues ? 1u : 0u;
  status[(round & 1u) * 2u + 1u] = total;
}

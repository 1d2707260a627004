// A WHILE over a few values of 32 bits by one invocation: up to `steps` iterations, which the next dispatch goes on from. The macros:
//   LOAD       declares the values, s0, s1, .., from the words;   STORE  puts those that change back;
//   CONDITION  sets goes_on from them;                            BODY   makes the next ones;
//   VALUES     is the number of values.
// After the values come the trips and the rounds so far. A round leaves its status in one of two places that the host reads in turn.
#version 450
#include "include/math.glsl"
layout(local_size_x = 1) in;
layout(binding = 0) buffer Words { uint words[]; };
layout(binding = 1) writeonly buffer Status { uint status[]; };
layout(push_constant) uniform parameter { uint steps; } p;
void main() {
  LOAD
  bool goes_on = true;
  uint trips = 0u;
  for (; trips < p.steps; ++trips) {
    CONDITION
    if (!goes_on) break;
    BODY
  }
  STORE
  const uint total = words[VALUES] + trips, round = words[VALUES + 1u];
  words[VALUES] = total;
  words[VALUES + 1u] = round + 1u;
  status[(round & 1u) * 2u] = goes_on ? 1u : 0u;
  status[(round & 1u) * 2u + 1u] = total;
}

"""Work that takes long."""

from __future__ import annotations

# Workgroups that each loop 60,000 times: lavapipe ends an invocation's loops after 65,535 iterations in all.
SLOW = """
layout(local_size_x = 1) in;
layout(binding = 0) buffer X { uint x[]; };
void main() {
  uint v = x[0] + gl_WorkGroupID.x;
  for (uint i = 0u; i < 60000u; ++i) v = v * 1664525u + 1013904223u;
  if (v == 7u) x[0] = v;
}
"""

"""Long-running kernels."""

from __future__ import annotations

# Each workgroup loops 60,000 times: lavapipe ends an invocation's loops after a total of 65,535 iterations.
SLOW = """
layout(local_size_x = 1) in;
layout(binding = 0) buffer X { uint x[]; };
void main() {
  uint v = x[0] + gl_WorkGroupID.x;
  for (uint i = 0u; i < 60000u; ++i) v = v * 1664525u + 1013904223u;
  if (v == 7u) x[0] = v;
}
"""

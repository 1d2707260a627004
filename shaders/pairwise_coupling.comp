// Class probabilities from pairwise probabilities (Wu, Lin and Weng, 2004): the p of sum 1 that minimises p^T Q p.
//
// x: [rows, pairs], r[i][j] of the first class against the second. Q[i][i] = sum of r[j][i]^2 over j != i; Q[i][j] = -r[j][i] r[i][j]. a:
// scratch with p, Q p and the diagonal of Q. include/work_item.glsl defines whether a workgroup or an invocation has a row.
//   for each round: compute Q p; stop if max |Q p - p^T Q p| < enough; update p class by class
//
// For all devices. Selected in cpp/operators/ml/pairwise_coupling.cpp.
#version 450
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#include "include/work_item.glsl"
layout(binding = 0) readonly buffer X { X_TYPE x[]; };
layout(binding = 1) buffer Y { Y_TYPE y[]; };
layout(binding = 2) coherent buffer A { float a[]; };
layout(push_constant) uniform parameter {
  uint rows, classes, rounds;
  float enough;
  uint x_offset, y_offset;
} p;

const float kLeast = 1e-7;  // keeps probabilities away from 0 and 1

void main() {
  const uint row = WORK, id = MEMBER, n = p.classes;
  if (row >= p.rows) return;
  const uint pairs = p.x_offset + row * (n * (n - 1u) / 2u), shares = row * 3u * n, products = shares + n, diagonal = products + n;
#define PAIR(i, j) clamp(float(LOAD(pairs + (i) * (2u * n - (i) - 1u) / 2u + (j) - (i) - 1u)), kLeast, 1.0 - kLeast)
  for (uint i = id; i < n; i += MEMBERS) {
    float sum = 0.0;
    for (uint j = 0u; j < n; ++j) {
      if (j == i) continue;
      const float against = j < i ? PAIR(j, i) : 1.0 - PAIR(i, j);
      sum += against * against;
    }
    a[diagonal + i] = sum;
    a[shares + i] = 1.0 / float(n);
  }
  meet();
  for (uint round = 0u; round < p.rounds; ++round) {
    for (uint i = id; i < n; i += MEMBERS) {
      float sum = 0.0;
      for (uint j = 0u; j < n; ++j) {
        const float r = j == i ? 0.0 : PAIR(min(i, j), max(i, j));
        sum += (j == i ? a[diagonal + i] : -r * (1.0 - r)) * a[shares + j];
      }
      a[products + i] = sum;
    }
    meet();
    float whole = 0.0, most = 0.0;
    for (uint j = 0u; j < n; ++j) whole += a[shares + j] * a[products + j];
    for (uint j = 0u; j < n; ++j) most = max(most, abs(a[products + j] - whole));
    if (most < p.enough) break;
    for (uint t = 0u; t < n; ++t) {
      const float product = a[products + t], square = a[diagonal + t];
      const float step = (whole - product) / square, all = 1.0 + step;
      whole = (whole + step * (step * square + 2.0 * product)) / all / all;
      meet();
      for (uint j = id; j < n; j += MEMBERS) {
        const float r = j == t ? 0.0 : PAIR(min(t, j), max(t, j));
        a[products + j] = (a[products + j] + step * (j == t ? square : -r * (1.0 - r))) / all;
        a[shares + j] = (a[shares + j] + (j == t ? step : 0.0)) / all;
      }
      meet();
    }
  }
  for (uint i = id; i < n; i += MEMBERS) STORE(p.y_offset + row * n + i, a[shares + i]);
}

// Class probabilities from pairwise probabilities (Wu, Lin and Weng, 2004): finds the p with sum 1 that minimises p^T Q p.
//
// x: [rows, pairs], the probabilities r[i][j] of class i against class j. Q[i][i] = sum of r[j][i]^2 over j != i; Q[i][j] = -r[j][i]
// r[i][j]. a: scratch with p, Q p and the diagonal of Q. include/work_item.glsl determines whether a workgroup or an invocation processes a
// row.
//   for each round: compute Q p; stop if max |Q p - p^T Q p| < tolerance; update p class by class
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
  float tolerance;
  uint x_offset, y_offset;
} p;

const float kMinProbability = 1e-7;  // keeps probabilities away from 0 and 1

void main() {
  const uint row = ITEM_INDEX, id = THREAD_IN_ITEM, n = p.classes;
  if (row >= p.rows) return;
  const uint pairs = p.x_offset + row * (n * (n - 1u) / 2u), probabilities = row * 3u * n, qp = probabilities + n, diagonal = qp + n;
#define PAIR(i, j) clamp(float(LOAD(pairs + (i) * (2u * n - (i) - 1u) / 2u + (j) - (i) - 1u)), kMinProbability, 1.0 - kMinProbability)
  for (uint i = id; i < n; i += ITEM_THREADS) {
    float sum = 0.0;
    for (uint j = 0u; j < n; ++j) {
      if (j == i) continue;
      const float reverse = j < i ? PAIR(j, i) : 1.0 - PAIR(i, j);
      sum += reverse * reverse;
    }
    a[diagonal + i] = sum;
    a[probabilities + i] = 1.0 / float(n);
  }
  item_barrier();
  for (uint round = 0u; round < p.rounds; ++round) {
    for (uint i = id; i < n; i += ITEM_THREADS) {
      float sum = 0.0;
      for (uint j = 0u; j < n; ++j) {
        const float r = j == i ? 0.0 : PAIR(min(i, j), max(i, j));
        sum += (j == i ? a[diagonal + i] : -r * (1.0 - r)) * a[probabilities + j];
      }
      a[qp + i] = sum;
    }
    item_barrier();
    float p_q_p = 0.0, max_residual = 0.0;
    for (uint j = 0u; j < n; ++j) p_q_p += a[probabilities + j] * a[qp + j];
    for (uint j = 0u; j < n; ++j) max_residual = max(max_residual, abs(a[qp + j] - p_q_p));
    if (max_residual < p.tolerance) break;
    for (uint t = 0u; t < n; ++t) {
      const float product = a[qp + t], square = a[diagonal + t];
      const float step = (p_q_p - product) / square, scale = 1.0 + step;
      p_q_p = (p_q_p + step * (step * square + 2.0 * product)) / scale / scale;
      item_barrier();
      for (uint j = id; j < n; j += ITEM_THREADS) {
        const float r = j == t ? 0.0 : PAIR(min(t, j), max(t, j));
        a[qp + j] = (a[qp + j] + step * (j == t ? square : -r * (1.0 - r))) / scale;
        a[probabilities + j] = (a[probabilities + j] + (j == t ? step : 0.0)) / scale;
      }
      item_barrier();
    }
  }
  for (uint i = id; i < n; i += ITEM_THREADS) STORE(p.y_offset + row * n + i, a[probabilities + i]);
}

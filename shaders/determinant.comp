// Determinants of square matrices by Gaussian elimination with partial pivoting, on a copy in `a`.
//
// x: [matrices, size, size], dense. y: [matrices]. a: scratch of the size of x. include/work_item.glsl determines whether a workgroup or a
// single invocation processes a matrix.
//   for each column k: find the pivot (reduction); swap rows; determinant *= pivot; eliminate the rows below
//
// For all devices. Selected in cpp/operators/conv_gemm/determinant.cpp.
#version 450
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#include "include/work_item.glsl"
layout(binding = 0) readonly buffer X { X_TYPE x[]; };
layout(binding = 1) buffer Y { Y_TYPE y[]; };
layout(binding = 2) coherent buffer A { TYPE a[]; };
layout(push_constant) uniform parameter { uint matrices, size, x_offset, y_offset; } p;

#if ONE_THREAD_PER_ITEM
#define SHARED
#else
#define SHARED shared
#endif
SHARED TYPE largest[ITEM_THREADS];
SHARED uint rows[ITEM_THREADS];  // row index of each pivot candidate

void main() {
  const uint matrix = ITEM_INDEX, id = THREAD_IN_ITEM, n = p.size;
  if (matrix >= p.matrices) return;
  const uint first = matrix * n * n;
  for (uint i = id; i < n * n; i += ITEM_THREADS) a[first + i] = LOAD(p.x_offset + first + i);
  item_barrier();
  TYPE determinant = TYPE(1);
  for (uint k = 0u; k < n; ++k) {
    largest[id] = TYPE(-1);
    rows[id] = k;
    for (uint i = k + id; i < n; i += ITEM_THREADS) {
      const TYPE size = abs(a[first + i * n + k]);
      if (!(size <= largest[id])) {
        largest[id] = size;
        rows[id] = i;
      }
    }
    item_barrier();
    uint pivot_row = k;
    TYPE best = TYPE(-1);
    for (uint i = 0u; i < ITEM_THREADS; ++i)
      if (!(largest[i] <= best)) {
        best = largest[i];
        pivot_row = rows[i];
      }
    item_barrier();
    if (pivot_row != k) {
      determinant = -determinant;
      for (uint j = k + id; j < n; j += ITEM_THREADS) {
        const TYPE swapped = a[first + k * n + j];
        a[first + k * n + j] = a[first + pivot_row * n + j];
        a[first + pivot_row * n + j] = swapped;
      }
      item_barrier();
    }
    const TYPE pivot = a[first + k * n + k];
    determinant *= pivot;
    if (pivot == TYPE(0)) break;  // the rest of the column is zero
    for (uint j = k + 1u + id; j < n; j += ITEM_THREADS)
      for (uint i = k + 1u; i < n; ++i) a[first + i * n + j] -= a[first + i * n + k] / pivot * a[first + k * n + j];
    item_barrier();
  }
  if (id == 0u) STORE(p.y_offset + matrix, determinant);
}

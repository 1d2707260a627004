// GEMM with few columns, fused with Softmax of each row: y = softmax(epilogue(x w + bias)).
//
// x: [rows, k_size], any strides. w: packed as [k_size][columns rounded up to 8]. y and product (HAS_PRODUCT: the result before Softmax):
// [rows, columns].
// Workgroup = one row. THREADS_PER_ROW neighbouring invocations load a row of w, four columns each; the other invocations load further
// rows.
//   for each 4 rows of w of this invocation: issue all loads; acc += x w
//   reduce in shared memory in two steps; bias; epilogue; maximum; exponentials; sum; store
//
// For GPUs. Selected in cpp/operators/conv_gemm/gemm_softmax.cpp.
#version 450
#extension GL_EXT_control_flow_attributes : require
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/epilogue.glsl"
#include "include/tensor.glsl"
#include "include/mixed_precision.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint INVOCATIONS = 256u;
layout(constant_id = 1) const uint THREADS_PER_ROW = 8u;  // number of vec4s in a row of w, rounded up to a power of two

layout(binding = 0) readonly buffer X { XFP x[]; };
layout(binding = 1) readonly buffer W { WFP4 w[]; };
layout(binding = 2) buffer Y { YFP y[]; };
#if HAS_BIAS
layout(binding = 3) readonly buffer B { float b[]; };
#endif
#if HAS_PRODUCT
layout(binding = 4) buffer Product { YFP product[]; };
#endif
layout(push_constant) uniform parameter {
  uint rows, k_size, columns;
  uint x_stride_row, x_stride_column;
  uint x_offset, w_offset, y_offset;
#if HAS_BIAS
  uint b_offset;
#endif
#if HAS_PRODUCT
  uint product_offset;
#endif
} p;

#if Y_FLOAT
#define SET_OF(t, i, v) t[i] = v
#define AS_STORED(v) (v)
#else
#define SET_OF(t, i, v) pm_store(t, i, v)
#define AS_STORED(v) pm_stored_vec4(vec4(v)).x
#endif

const uint UNROLL = 4u;
const uint ROWS_IN_FLIGHT = INVOCATIONS / THREADS_PER_ROW;  // number of rows of w loaded in parallel
const uint COLUMNS = THREADS_PER_ROW * 4u, COLUMN_SPLITS = INVOCATIONS / COLUMNS;  // number of partial sums per column
shared vec4 reduce_buffer[INVOCATIONS];     // [down][vec4 of columns]
shared float column_partials[INVOCATIONS];  // [part][column]
shared float results[COLUMNS];              // results of a row, rounded to the storage type; then their exponentials

vec4 partial_dot(uint row) {
  const uint vec4_index = gl_LocalInvocationIndex % THREADS_PER_ROW, row_index = gl_LocalInvocationIndex / THREADS_PER_ROW;
  const uint row_vec4 = (p.columns + 7u) / 8u * 2u, first_w = (p.w_offset >> 2) + min(vec4_index, row_vec4 - 1u);
  const uint first_x = p.x_offset + row * p.x_stride_row;
  vec4 sum = vec4(0.0);
  for (uint begin = row_index; begin < p.k_size; begin += ROWS_IN_FLIGHT * UNROLL) {
    vec4 w_regs[UNROLL];
    float factors[UNROLL];
    [[unroll]] for (uint k = 0u; k < UNROLL; ++k) {  // branch-free: past the end, the last row is repeated and counts as zero
      const uint at = min(begin + k * ROWS_IN_FLIGHT, p.k_size - 1u);
      w_regs[k] = W4_AT(first_w + at * row_vec4);
      factors[k] = X_AT(first_x + at * p.x_stride_column);
    }
    [[unroll]] for (uint k = 0u; k < UNROLL; ++k) {
      const bool in_range = begin + k * ROWS_IN_FLIGHT < p.k_size;
      sum = fma(vec4(in_range ? factors[k] : 0.0), in_range ? w_regs[k] : vec4(0.0), sum);
    }
  }
  return sum;
}

// Computes a row of the GEMM into `results`.
void multiply(uint row) {
  reduce_buffer[gl_LocalInvocationIndex] = partial_dot(row);
  barrier();
  const uint column = gl_LocalInvocationIndex % COLUMNS, split = gl_LocalInvocationIndex / COLUMNS;
  float partial_sum = 0.0;
  for (uint i = 0u; i < ROWS_IN_FLIGHT / COLUMN_SPLITS; ++i) partial_sum += reduce_buffer[(split * (ROWS_IN_FLIGHT / COLUMN_SPLITS) + i) * THREADS_PER_ROW + column / 4u][column % 4u];
  column_partials[gl_LocalInvocationIndex] = partial_sum;
  barrier();
  if (gl_LocalInvocationIndex < COLUMNS) {
    float sum = 0.0;
    for (uint i = 0u; i < COLUMN_SPLITS; ++i) sum += column_partials[i * COLUMNS + column];
#if HAS_BIAS
    sum += b[p.b_offset + min(column, p.columns - 1u)];
#endif
    const float result = epilogue(sum);
#if HAS_PRODUCT
    if (column < p.columns) SET_OF(product, p.product_offset + row * p.columns + column, result);
#endif
    results[column] = AS_STORED(result);
  }
  barrier();
}

void main() {
  const uint row = grid_group(), column = gl_LocalInvocationIndex;
  if (row >= p.rows) return;
  multiply(row);
  float row_max = uintBitsToFloat(0xff800000u);
  for (uint i = 0u; i < p.columns; ++i) row_max = pm_max(row_max, results[i]);
  precise float shifted = results[min(column, p.columns - 1u)] - row_max;
  const float exponential = exp(shifted);
  barrier();  // wait until all invocations have read the results; exponentials reuse the memory
  if (column < p.columns) results[column] = exponential;
  barrier();
  float sum = 0.0;
  for (uint i = 0u; i < p.columns; ++i) sum += results[i];
  if (column < p.columns) SET_OF(y, p.y_offset + row * p.columns + column, exponential / sum);
}

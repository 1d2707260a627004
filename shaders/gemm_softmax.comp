// GEMM with few columns, fused with Softmax of each row: y = softmax(epilogue(x w + bias)).
//
// x: [rows, depth], any strides. w: packed as [depth][columns rounded up to 8]. y and product (HAS_PRODUCT: the result before Softmax):
// [rows, columns].
// Workgroup = one row. ACROSS neighbouring invocations load a row of w, four columns each; the others load further rows.
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
layout(constant_id = 1) const uint ACROSS = 8u;  // a power of two between the number of vec4s in a row of w and twice that number

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
  uint rows, depth, columns;
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

const uint AHEAD = 4u;
const uint DEEP = INVOCATIONS / ACROSS;  // number of rows of w loaded in parallel
const uint COLUMNS = ACROSS * 4u, PARTS = INVOCATIONS / COLUMNS;  // number of partial sums per column
shared vec4 meeting[INVOCATIONS];  // [down][vec4 of columns]
shared float parts[INVOCATIONS];   // [part][column]
shared float results[COLUMNS];     // results of a row, rounded to the storage type; then their exponentials

vec4 sum_of_row(uint row) {
  const uint four = gl_LocalInvocationIndex % ACROSS, down = gl_LocalInvocationIndex / ACROSS;
  const uint fours = (p.columns + 7u) / 8u * 2u, first_w = (p.w_offset >> 2) + min(four, fours - 1u);
  const uint first_x = p.x_offset + row * p.x_stride_row;
  vec4 sum = vec4(0.0);
  for (uint begin = down; begin < p.depth; begin += DEEP * AHEAD) {
    vec4 held[AHEAD];
    float factors[AHEAD];
    [[unroll]] for (uint k = 0u; k < AHEAD; ++k) {  // branch-free: past the end, the last row is repeated and counts as zero
      const uint at = min(begin + k * DEEP, p.depth - 1u);
      held[k] = W4_AT(first_w + at * fours);
      factors[k] = X_AT(first_x + at * p.x_stride_column);
    }
    [[unroll]] for (uint k = 0u; k < AHEAD; ++k) {
      const bool deep = begin + k * DEEP < p.depth;
      sum = fma(vec4(deep ? factors[k] : 0.0), deep ? held[k] : vec4(0.0), sum);
    }
  }
  return sum;
}

// Computes a row of the GEMM into `results`.
void multiply(uint row) {
  meeting[gl_LocalInvocationIndex] = sum_of_row(row);
  barrier();
  const uint column = gl_LocalInvocationIndex % COLUMNS, part = gl_LocalInvocationIndex / COLUMNS;
  float some = 0.0;
  for (uint i = 0u; i < DEEP / PARTS; ++i) some += meeting[(part * (DEEP / PARTS) + i) * ACROSS + column / 4u][column % 4u];
  parts[gl_LocalInvocationIndex] = some;
  barrier();
  if (gl_LocalInvocationIndex < COLUMNS) {
    float sum = 0.0;
    for (uint i = 0u; i < PARTS; ++i) sum += parts[i * COLUMNS + column];
#if HAS_BIAS
    sum += b[p.b_offset + min(column, p.columns - 1u)];
#endif
    const float made = epilogue(sum);
#if HAS_PRODUCT
    if (column < p.columns) SET_OF(product, p.product_offset + row * p.columns + column, made);
#endif
    results[column] = AS_STORED(made);
  }
  barrier();
}

void main() {
  const uint row = grid_group(), column = gl_LocalInvocationIndex;
  if (row >= p.rows) return;
  multiply(row);
  float largest = uintBitsToFloat(0xff800000u);
  for (uint i = 0u; i < p.columns; ++i) largest = pm_max(largest, results[i]);
  precise float apart = results[min(column, p.columns - 1u)] - largest;
  const float own = exp(apart);
  barrier();  // wait until all invocations have read the results; exponentials reuse the memory
  if (column < p.columns) results[column] = own;
  barrier();
  float sum = 0.0;
  for (uint i = 0u; i < p.columns; ++i) sum += results[i];
  if (column < p.columns) SET_OF(y, p.y_offset + row * p.columns + column, own / sum);
}

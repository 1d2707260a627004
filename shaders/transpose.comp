// Transposes matrices: rows are contiguous in the target, columns in the source.
//
// BITS: size of an element, which is SCALE elements of the tensor. LANES: number of elements per load and store; all strides, offsets and
// sizes except the matrices' are counted in units of LANES elements. BATCH: number of batch axes.
// Workgroup = a tile of TILE_ROWS x TILE_COLUMNS elements, through shared memory (LANES: pairs of 16 bits, or single elements of 32 or 64).
// IN_REGISTERS: 4 x 4 blocks of 8 to 32 bits, one per invocation.
//
// For all devices. Selected in cpp/operators/common/strided_copy.cpp.
#version 450
#include "include/grid.glsl"
#if IN_REGISTERS
layout(local_size_x = 64) in;
#else
layout(local_size_x = WORKGROUP) in;
#endif
#if BITS * LANES == 128
#define VECTOR uvec4
#elif BITS * LANES == 64
#define VECTOR uvec2
#else
#define VECTOR uint
#endif
layout(binding = 0) readonly buffer X { VECTOR x[]; };
layout(binding = 1) writeonly buffer Y { VECTOR y[]; };
layout(push_constant) uniform parameter {
  uint tiles, tile_rows, tile_columns;  // tiles: number in all matrices; row and column tiles per matrix
  uint rows, columns;                   // size of the target matrix
  int x_stride;                         // stride between columns
  uint y_stride;                        // stride between rows
  uint size[BATCH];
  int x_batch[BATCH];
  uint y_batch[BATCH];
  int x_first;
  uint y_first;
  uint x_offset, y_offset;
} p;

const uint kLanes = LANES, kRows = TILE_ROWS / kLanes, kColumns = TILE_COLUMNS / kLanes;

#if IN_REGISTERS
// Transposes a 4 x 4 block; `row` and `column` count blocks.
void transpose_block(uint from, uint to, uint row, uint column) {
  VECTOR loaded[4];
  for (uint k = 0u; k < 4u; ++k) loaded[k] = x[from + row + uint(int(4u * column + k) * p.x_stride)];
  for (uint k = 0u; k < 4u; ++k) {
    VECTOR row_value;
#if BITS == 32
    row_value = uvec4(loaded[0][k], loaded[1][k], loaded[2][k], loaded[3][k]);
#elif BITS == 16
    const uint word = k >> 1, shift = (k & 1u) * 16u;
    row_value.x = bitfieldInsert(loaded[0][word] >> shift, loaded[1][word] >> shift, 16, 16);
    row_value.y = bitfieldInsert(loaded[2][word] >> shift, loaded[3][word] >> shift, 16, 16);
#else
    row_value = 0u;
    for (uint i = 0u; i < 4u; ++i) row_value |= bitfieldExtract(loaded[i], int(k) * 8, 8) << i * 8u;
#endif
    y[to + (4u * row + k) * p.y_stride + column] = row_value;
  }
}
#else
const uint kPitch = kRows + 1u;  // padded by one to avoid bank conflicts
shared VECTOR tile[TILE_COLUMNS * kPitch];
#endif

void main() {
  const uint id = grid_group(), thread = gl_LocalInvocationID.x;
  if (id >= p.tiles) return;
  const uint line = id / p.tile_rows, first_row = (id - line * p.tile_rows) * kRows;
  uint batch = line / p.tile_columns;
  const uint first_column = (line - batch * p.tile_columns) * kColumns;
  int source = p.x_first;
  uint target = p.y_offset / (SCALE * kLanes) + p.y_first;
  for (int axis = BATCH - 1; axis >= 0; --axis) {
    const uint rest = batch / p.size[axis];
    source += int(batch - rest * p.size[axis]) * p.x_batch[axis];
    target += (batch - rest * p.size[axis]) * p.y_batch[axis];
    batch = rest;
  }
  const uint from = p.x_offset / (SCALE * kLanes) + uint(source);
  const uint rows = p.rows / kLanes, columns = p.columns / kLanes;

#if IN_REGISTERS
  const uint row = first_row + thread % kRows, column = first_column + thread / kRows;
  if (row < rows && column < columns) transpose_block(from, target, row, column);
#else
  const uint step = gl_WorkGroupSize.x / kRows;  // number of columns loaded at once
  VECTOR loaded[TILE_COLUMNS / step];
  for (uint k = 0u; k < TILE_COLUMNS / step; ++k) {
    const uint row = min(first_row + thread % kRows, rows - 1u);
    const uint column = min(first_column * kLanes + thread / kRows + k * step, p.columns - 1u);
    loaded[k] = x[from + row + uint(int(column) * p.x_stride)];
  }
  for (uint k = 0u; k < TILE_COLUMNS / step; ++k) tile[(thread / kRows + k * step) * kPitch + thread % kRows] = loaded[k];
  barrier();

  const uint down = gl_WorkGroupSize.x / kColumns;  // number of rows stored at once
  const uint across = thread % kColumns, column = first_column + across;
  if (column >= columns) return;
  for (uint k = 0u; k < kRows / down; ++k) {
    const uint local_row = thread / kColumns + k * down, row = first_row + local_row;
    if (row >= rows) return;
#if LANES == 2
    const uint even = tile[2u * across * kPitch + local_row], odd = tile[(2u * across + 1u) * kPitch + local_row];
    const uint to = target + 2u * row * p.y_stride + column;
    y[to] = (even & 0xffffu) | odd << 16;
    y[to + p.y_stride] = even >> 16 | (odd & 0xffff0000u);
#else
    y[target + row * p.y_stride + column] = tile[across * kPitch + local_row];
#endif
  }
#endif
}

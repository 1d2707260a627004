// Copies matrices whose rows lie side by side in the target and whose columns do in the source, through tiles in shared memory.
// BITS: of an element (16, 32, 64). A tile has TILE_ROWS * TILE_COLUMNS elements; those of 16 bits are read and written as pairs along
// either side, so that sizes, strides and firsts are even, and a tile's memory holds pairs of rows.
// SCALE: elements of the tensor in one that is moved. BATCH: axes around the matrices.
#version 450
layout(local_size_x = 256) in;
#if BITS == 64
#define ELEMENT uvec2
#else
#define ELEMENT uint
#endif
#define LANES (BITS == 16 ? 2u : 1u)
layout(binding = 0) readonly buffer X { ELEMENT x[]; };
layout(binding = 1) writeonly buffer Y { ELEMENT y[]; };
// Sizes and strides in words for elements of 16 bits, else in elements.
layout(push_constant) uniform parameter {
  uint tiles, tile_rows, tile_columns;  // of them all; of a matrix
  uint rows, columns;                   // of the target
  int x_stride;                         // from one column to the next
  uint y_stride;                        // from one row to the next
  uint size[BATCH];
  int x_batch[BATCH];
  uint y_batch[BATCH];
  int x_first;
  uint y_first;
  uint x_offset, y_offset;
} p;

const uint kRows = TILE_ROWS / LANES, kPitch = kRows + 1u;  // no two of neighbouring columns in one bank
shared ELEMENT tile[TILE_COLUMNS * kPitch];

void main() {
  const uint id = gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x, thread = gl_LocalInvocationID.x;
  if (id >= p.tiles) return;
  const uint line = id / p.tile_rows, first_row = (id - line * p.tile_rows) * kRows;
  uint batch = line / p.tile_columns;
  const uint first_column = (line - batch * p.tile_columns) * TILE_COLUMNS;
  int source = p.x_first;
  uint target = p.y_offset / (SCALE * LANES) + p.y_first;
  for (int axis = BATCH - 1; axis >= 0; --axis) {
    const uint rest = batch / p.size[axis];
    source += int(batch - rest * p.size[axis]) * p.x_batch[axis];
    target += (batch - rest * p.size[axis]) * p.y_batch[axis];
    batch = rest;
  }
  const uint from = p.x_offset / (SCALE * LANES) + uint(source);
  const uint rows = p.rows / LANES, columns = p.columns;

  const uint row = min(first_row + thread % kRows, rows - 1u);
  const uint step = 256u / kRows;
  ELEMENT held[TILE_COLUMNS / step];
  for (uint k = 0u; k < TILE_COLUMNS / step; ++k) {
    const uint column = min(first_column + thread / kRows + k * step, columns - 1u);
    held[k] = x[from + row + uint(int(column) * p.x_stride)];
  }
  for (uint k = 0u; k < TILE_COLUMNS / step; ++k) tile[(thread / kRows + k * step) * kPitch + thread % kRows] = held[k];
  barrier();

  const uint across = TILE_COLUMNS / LANES, down = 256u / across;  // what 256 invocations write at once
  const uint at = thread % across, column = first_column / LANES + at;
  if (column >= columns / LANES) return;
  for (uint k = 0u; k < kRows / down; ++k) {
    const uint local_row = thread / across + k * down, to_row = first_row + local_row;
    if (to_row >= rows) return;
#if BITS == 16
    const uint even = tile[2u * at * kPitch + local_row], odd = tile[(2u * at + 1u) * kPitch + local_row];
    const uint to = target + 2u * to_row * p.y_stride + column;
    y[to] = (even & 0xffffu) | odd << 16;
    y[to + p.y_stride] = even >> 16 | (odd & 0xffff0000u);
#else
    y[target + to_row * p.y_stride + column] = tile[at * kPitch + local_row];
#endif
  }
}

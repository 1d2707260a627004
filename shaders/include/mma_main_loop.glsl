// Main loop over K in chunks of 32, with operands in registers; SPLIT subgroups share K. Define AHEAD, EARLY, SPLIT and `chunks` (the
// number of chunks), and include mma.glsl before. The shader defines read() and multiply().
#ifndef PM_CHUNKS_GLSL
#define PM_CHUNKS_GLSL
void read(uint to, uint begin);  // loads AHEAD chunks, from chunk `begin` on, into buffer `to`; zeros past K
void multiply(uint from);        // accumulates the chunks in buffer `from`

// Fills an operand fragment with 4 K steps of one line and of the line 8 further on, which is stored in the next element.
#define SET_LINES(matrix, held, place, part)                                                                     \
  {                                                                                                              \
    const uvec2 low_line = part == 0u ? held[place].xy : held[place].zw;                                         \
    const uvec2 high_line = part == 0u ? held[(place) + 1u].xy : held[(place) + 1u].zw;                          \
    SET_COMPONENTS(matrix, PAIR(low_line.x), PAIR(low_line.y), PAIR(high_line.x), PAIR(high_line.y))             \
  }

// Main loop of a subgroup; double-buffered if EARLY is not 0. All subgroups run the same number of iterations, padded with zeros.
void multiply_all(uint share) {
  const uint step = SPLIT * AHEAD, turns = (chunks + step - 1u) / step;
  uint begin = share * AHEAD;
  if (EARLY == 0u) {
    for (uint turn = 0u; turn < turns; ++turn, begin += step) {
      read(0u, begin);
      multiply(0u);
    }
  } else {
    read(0u, begin);
    for (uint turn = 0u; turn < turns; turn += 2u, begin += 2u * step) {
      if (turn + 1u < turns) read(EARLY, begin + step);
      multiply(0u);
      if (turn + 1u >= turns) break;
      if (turn + 2u < turns) read(0u, begin + 2u * step);
      multiply(EARLY);
    }
  }
}
#endif

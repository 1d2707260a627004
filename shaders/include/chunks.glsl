// Products that subgroups sum chunk by chunk of 32 steps, both operands in registers. Before this stand AHEAD, EARLY and SPLIT, include
// fragments.glsl, and `chunks`, how many there are; the shader defines read() and multiply().
#ifndef PM_CHUNKS_GLSL
#define PM_CHUNKS_GLSL
void read(uint to, uint begin);  // AHEAD chunks from `begin` on into half `to` of what is held; past the end there are zeros
void multiply(uint from);        // adds the products of the chunks in half `from`

// The components of either operand: four steps of one of its lines, and of the line that is eight further on, held in the next place.
#define SET_LINES(matrix, held, place, part)                                                                     \
  {                                                                                                              \
    const uvec2 low_line = part == 0u ? held[place].xy : held[place].zw;                                         \
    const uvec2 high_line = part == 0u ? held[(place) + 1u].xy : held[(place) + 1u].zw;                          \
    SET_COMPONENTS(matrix, PAIR(low_line.x), PAIR(low_line.y), PAIR(high_line.x), PAIR(high_line.y))             \
  }

// Adds the products of all chunks of this subgroup. All subgroups take as many turns: past the depth they multiply zeros.
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

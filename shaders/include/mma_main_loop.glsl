// Main loop over K in chunks of 32, with operands in registers; SPLIT subgroups divide K among themselves. Define UNROLL, PREFETCH, SPLIT
// and `chunks` (the number of chunks), and include mma.glsl before. The shader defines load_chunks() and multiply_chunks().
#ifndef PM_MMA_MAIN_LOOP_GLSL
#define PM_MMA_MAIN_LOOP_GLSL
void load_chunks(uint to, uint begin);  // loads UNROLL chunks, starting at chunk `begin`, into buffer `to`; zeros past K
void multiply_chunks(uint from);        // accumulates the chunks in buffer `from`

// Fills an operand fragment with 4 K elements each of the lines in regs[index] and regs[index + 1]; k_half selects the half of each vec8.
#define SET_FRAGMENT_LINES(matrix, regs, index, k_half)                                                                     \
  {                                                                                                              \
    const uvec2 low_line = k_half == 0u ? regs[index].xy : regs[index].zw;                                         \
    const uvec2 high_line = k_half == 0u ? regs[(index) + 1u].xy : regs[(index) + 1u].zw;                          \
    SET_FRAGMENT(matrix, UNPACK_OPERAND2(low_line.x), UNPACK_OPERAND2(low_line.y), UNPACK_OPERAND2(high_line.x), UNPACK_OPERAND2(high_line.y))             \
  }

// Main loop of a subgroup; double-buffered if PREFETCH is not 0. All subgroups run the same number of iterations, padded with zeros.
void run_main_loop(uint split) {
  const uint step = SPLIT * UNROLL, iterations = (chunks + step - 1u) / step;
  uint begin = split * UNROLL;
  if (PREFETCH == 0u) {
    for (uint iteration = 0u; iteration < iterations; ++iteration, begin += step) {
      load_chunks(0u, begin);
      multiply_chunks(0u);
    }
  } else {
    load_chunks(0u, begin);
    for (uint iteration = 0u; iteration < iterations; iteration += 2u, begin += 2u * step) {
      if (iteration + 1u < iterations) load_chunks(PREFETCH, begin + step);
      multiply_chunks(0u);
      if (iteration + 1u >= iterations) break;
      if (iteration + 2u < iterations) load_chunks(0u, begin + 2u * step);
      multiply_chunks(PREFETCH);
    }
  }
}
#endif

// 16x16x16 cooperative matrices in the fragment layout described in attention_mma.comp, for subgroups of 32. LEFT, RIGHT and SUMS declare
// the A, B and accumulator matrices (_OF: arrays); MULTIPLY_ADD(left, right, sums) accumulates.
// EMULATED: emulates them in shared memory, so that the layout can be tested on devices without cooperative matrices; all invocations of
// the workgroup must call MULTIPLY_ADD together.
#ifndef PM_FRAGMENTS_GLSL
#define PM_FRAGMENTS_GLSL
const uint kLanes = 32u, kComponents = 8u;
#if EMULATED
#define LANE (gl_LocalInvocationIndex % kLanes)
#define SUBGROUP_NUMBER (gl_LocalInvocationIndex / kLanes)
#define Pair vec2
#define PAIR(bits) unpackHalf2x16(bits)
#define LEFT(name) float name[kComponents]
#define LEFT_OF(name, count) float name[count][kComponents]
#define RIGHT(name) float name[kComponents]
#define RIGHT_OF(name, count) float name[count][kComponents]
#define CLEAR_SUMS(name) name = float[kComponents](0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
#define SUMS(name) float name[kComponents] = float[kComponents](0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
#define SUMS_OF(name, count) float name[count][kComponents]
#define SET_SUMS(sums, value) for (uint i_of_sums = 0u; i_of_sums < kComponents; ++i_of_sums) sums[i_of_sums] = value
#define MULTIPLY_ADD(left, right, sums) emulated_multiply(left, right, sums)
#define AS_ELEMENT(number) unpackHalf2x16(packHalf2x16(vec2(number))).x
#define FROM_LANE(x, lane) emulated_exchange(x, lane)
#define FROM_OTHER(x, mask) emulated_exchange(x, LANE ^ (mask))
#define SUBGROUP_MEETS() barrier()

shared float emulated_left[INVOCATIONS * kComponents], emulated_right[INVOCATIONS * kComponents];

// Index of operand element [line][step] in the subgroup's region of shared memory.
uint emulated_place(uint line, uint step) {
  const uint lane = line % 8u * 4u + step % 8u / 2u;
  return (SUBGROUP_NUMBER * kLanes + lane) * kComponents + line / 8u * 4u + step / 8u * 2u + step % 2u;
}

void emulated_multiply(float left[kComponents], float right[kComponents], inout float sums[kComponents]) {
  barrier();  // wait until no invocation is still reading the previous matrices
  for (uint i = 0u; i < kComponents; ++i) {
    emulated_left[gl_LocalInvocationIndex * kComponents + i] = left[i];
    emulated_right[gl_LocalInvocationIndex * kComponents + i] = right[i];
  }
  barrier();
  for (uint i = 0u; i < kComponents; ++i) {
    const uint row = LANE / 4u + i / 4u * 8u, column = LANE % 4u * 2u + i % 2u + i / 2u % 2u * 8u;
    for (uint step = 0u; step < 16u; ++step)
      sums[i] += emulated_left[emulated_place(row, step)] * emulated_right[emulated_place(column, step)];
  }
}

shared float emulated_values[INVOCATIONS];

// Returns the value of another lane.
float emulated_exchange(float x, uint lane) {
  barrier();  // wait until no invocation is still reading the previous values
  emulated_values[gl_LocalInvocationIndex] = x;
  barrier();
  return emulated_values[SUBGROUP_NUMBER * kLanes + lane];
}
#else
#define LANE gl_SubgroupInvocationID
#define SUBGROUP_NUMBER gl_SubgroupID
#define Pair f16vec2
#define PAIR(bits) unpackFloat2x16(bits)
#define LEFT(name) coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> name
#define LEFT_OF(name, count) coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> name[count]
#define RIGHT(name) coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> name
#define RIGHT_OF(name, count) coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> name[count]
#define CLEAR_SUMS(name) name = ZERO_SUMS
#define ZERO_SUMS coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0.0)
#define SUMS(name) coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> name = ZERO_SUMS
#define SUMS_OF(name, count) coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> name[count]
#define SET_SUMS(sums, value) sums = coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(value)
#define MULTIPLY_ADD(left, right, sums) sums = coopMatMulAdd(left, right, sums)
#define AS_ELEMENT(number) float16_t(number)
#define FROM_LANE(x, lane) subgroupShuffle(x, lane)
#define FROM_OTHER(x, mask) subgroupShuffleXor(x, mask)
// Makes shared memory writes visible across the subgroup.
#define SUBGROUP_MEETS()           \
  {                                \
    subgroupMemoryBarrierShared(); \
    subgroupBarrier();             \
  }
#endif

// Fills an operand fragment with four K steps of line LANE / 4 and of the line 8 further on.
#define SET_COMPONENTS(matrix, line_a, line_b, other_a, other_b)                             \
  {                                                                                          \
    const Pair pair_a = line_a, pair_b = line_b, pair_c = other_a, pair_d = other_b;         \
    matrix[0] = pair_a.x, matrix[1] = pair_a.y, matrix[2] = pair_b.x, matrix[3] = pair_b.y;  \
    matrix[4] = pair_c.x, matrix[5] = pair_c.y, matrix[6] = pair_d.x, matrix[7] = pair_d.y;  \
  }
// Row and column of accumulator component i.
#define ROW_OF(i) (LANE / 4u + ((i) >> 2) * 8u)
#define COLUMN_OF(i) (LANE % 4u * 2u + ((i) & 1u) + ((i) >> 1 & 1u) * 8u)
#define FOUR_SUMS(sums, i) vec4(sums[i], sums[(i) + 1u], sums[(i) + 2u], sums[(i) + 3u])
#endif

// 16x16x16 cooperative matrices in the fragment layout described in attention_mma.comp, for subgroups of 32. MATRIX_A, MATRIX_B and
// ACCUMULATOR declare the A, B and accumulator matrices (_OF: arrays); MMA(left, right, sums) accumulates.
// EMULATED: emulates them in shared memory, so that the layout can be tested on devices without cooperative matrices; all invocations of
// the workgroup must call MMA together.
#ifndef PM_MMA_GLSL
#define PM_MMA_GLSL
const uint kLanes = 32u, kComponents = 8u;
#if EMULATED
#define LANE (gl_LocalInvocationIndex % kLanes)
#define SUBGROUP_ID (gl_LocalInvocationIndex / kLanes)
#define Operand2 vec2
#define UNPACK_OPERAND2(bits) unpackHalf2x16(bits)
#define MATRIX_A(name) float name[kComponents]
#define MATRIX_A_ARRAY(name, count) float name[count][kComponents]
#define MATRIX_B(name) float name[kComponents]
#define MATRIX_B_ARRAY(name, count) float name[count][kComponents]
#define CLEAR_ACCUMULATOR(name) name = float[kComponents](0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
#define ACCUMULATOR(name) float name[kComponents] = float[kComponents](0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
#define ACCUMULATOR_ARRAY(name, count) float name[count][kComponents]
#define FILL_ACCUMULATOR(sums, value) for (uint acc_i = 0u; acc_i < kComponents; ++acc_i) sums[acc_i] = value
#define MMA(left, right, sums) emulated_multiply(left, right, sums)
#define TO_OPERAND(number) unpackHalf2x16(packHalf2x16(vec2(number))).x
#define SHUFFLE(x, lane) emulated_shuffle(x, lane)
#define SHUFFLE_XOR(x, mask) emulated_shuffle(x, LANE ^ (mask))
#define SUBGROUP_BARRIER() barrier()

shared float emulated_left[INVOCATIONS * kComponents], emulated_right[INVOCATIONS * kComponents];

// Returns the index of operand element [line][step] in the subgroup's region of shared memory.
uint emulated_index(uint line, uint step) {
  const uint lane = line % 8u * 4u + step % 8u / 2u;
  return (SUBGROUP_ID * kLanes + lane) * kComponents + line / 8u * 4u + step / 8u * 2u + step % 2u;
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
      sums[i] += emulated_left[emulated_index(row, step)] * emulated_right[emulated_index(column, step)];
  }
}

shared float emulated_values[INVOCATIONS];

// Returns the value of another lane.
float emulated_shuffle(float x, uint lane) {
  barrier();  // wait until no invocation is still reading the previous values
  emulated_values[gl_LocalInvocationIndex] = x;
  barrier();
  return emulated_values[SUBGROUP_ID * kLanes + lane];
}
#else
#define LANE gl_SubgroupInvocationID
#define SUBGROUP_ID gl_SubgroupID
#define Operand2 f16vec2
#define UNPACK_OPERAND2(bits) unpackFloat2x16(bits)
#define MATRIX_A(name) coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> name
#define MATRIX_A_ARRAY(name, count) coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> name[count]
#define MATRIX_B(name) coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> name
#define MATRIX_B_ARRAY(name, count) coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> name[count]
#define CLEAR_ACCUMULATOR(name) name = ZERO_ACCUMULATOR
#define ZERO_ACCUMULATOR coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0.0)
#define ACCUMULATOR(name) coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> name = ZERO_ACCUMULATOR
#define ACCUMULATOR_ARRAY(name, count) coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> name[count]
#define FILL_ACCUMULATOR(sums, value) sums = coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(value)
#define MMA(left, right, sums) sums = coopMatMulAdd(left, right, sums)
#define TO_OPERAND(number) float16_t(number)
#define SHUFFLE(x, lane) subgroupShuffle(x, lane)
#define SHUFFLE_XOR(x, mask) subgroupShuffleXor(x, mask)
// Makes shared memory writes visible across the subgroup.
#define SUBGROUP_BARRIER()           \
  {                                \
    subgroupMemoryBarrierShared(); \
    subgroupBarrier();             \
  }
#endif

// Fills an operand fragment with four K elements each of lines LANE / 4 and LANE / 4 + 8: rows of A, or columns of B.
#define SET_FRAGMENT(matrix, line_a, line_b, other_a, other_b)                             \
  {                                                                                          \
    const Operand2 pair_a = line_a, pair_b = line_b, pair_c = other_a, pair_d = other_b;         \
    matrix[0] = pair_a.x, matrix[1] = pair_a.y, matrix[2] = pair_b.x, matrix[3] = pair_b.y;  \
    matrix[4] = pair_c.x, matrix[5] = pair_c.y, matrix[6] = pair_d.x, matrix[7] = pair_d.y;  \
  }
// Row and column of accumulator component i.
#define ACC_ROW(i) (LANE / 4u + ((i) >> 2) * 8u)
#define ACC_COLUMN(i) (LANE % 4u * 2u + ((i) & 1u) + ((i) >> 1 & 1u) * 8u)
#define ACC_VEC4(sums, i) vec4(sums[i], sums[(i) + 1u], sums[(i) + 2u], sums[(i) + 3u])
#endif

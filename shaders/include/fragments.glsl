// Matrix units whose components lie where attention_quads.comp says: LEFT, RIGHT and SUMS declare matrices of 16 by 16 (and _OF several), and
// MULTIPLY_ADD(left, right, sums) adds a product to sums. Subgroups of 32. EMULATED: a device without such units does the same in shared
// memory, so that tests of what lies where can run on it; all invocations of the workgroup multiply together then.
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

// Where the element [line][step] of an operand is held, in its subgroup's stretch.
uint emulated_place(uint line, uint step) {
  const uint lane = line % 8u * 4u + step % 8u / 2u;
  return (SUBGROUP_NUMBER * kLanes + lane) * kComponents + line / 8u * 4u + step / 8u * 2u + step % 2u;
}

void emulated_multiply(float left[kComponents], float right[kComponents], inout float sums[kComponents]) {
  barrier();  // nobody reads the matrices before any more
  for (uint i = 0u; i < kComponents; ++i) {
    emulated_left[gl_LocalInvocationIndex * kComponents + i] = left[i];
    emulated_right[gl_LocalInvocationIndex * kComponents + i] = right[i];
  }
  barrier();  // both matrices are there
  for (uint i = 0u; i < kComponents; ++i) {
    const uint row = LANE / 4u + i / 4u * 8u, column = LANE % 4u * 2u + i % 2u + i / 2u % 2u * 8u;
    for (uint step = 0u; step < 16u; ++step)
      sums[i] += emulated_left[emulated_place(row, step)] * emulated_right[emulated_place(column, step)];
  }
}

shared float emulated_values[INVOCATIONS];

// The value that another invocation of the subgroup has.
float emulated_exchange(float x, uint lane) {
  barrier();  // nobody reads the values before any more
  emulated_values[gl_LocalInvocationIndex] = x;
  barrier();  // all values are there
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
// What invocations of a subgroup have written to shared memory is there for all of it.
#define SUBGROUP_MEETS()           \
  {                                \
    subgroupMemoryBarrierShared(); \
    subgroupBarrier();             \
  }
#endif

// The components of either operand: four steps of one of its lines, LANE / 4, and of the line eight further on.
#define SET_COMPONENTS(matrix, line_a, line_b, other_a, other_b)                             \
  {                                                                                          \
    const Pair pair_a = line_a, pair_b = line_b, pair_c = other_a, pair_d = other_b;         \
    matrix[0] = pair_a.x, matrix[1] = pair_a.y, matrix[2] = pair_b.x, matrix[3] = pair_b.y;  \
    matrix[4] = pair_c.x, matrix[5] = pair_c.y, matrix[6] = pair_d.x, matrix[7] = pair_d.y;  \
  }
// The row and the column of component i of sums.
#define ROW_OF(i) (LANE / 4u + ((i) >> 2) * 8u)
#define COLUMN_OF(i) (LANE % 4u * 2u + ((i) & 1u) + ((i) >> 1 & 1u) * 8u)
// Four components of sums from component i on.
#define FOUR_SUMS(sums, i) vec4(sums[i], sums[(i) + 1u], sums[(i) + 2u], sums[(i) + 3u])
#endif

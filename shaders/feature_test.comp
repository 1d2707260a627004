// Feature test: checks operations, limits and features that the engine's kernels depend on.
//
// Each workgroup runs the section FIRST_SECTION + gl_WorkGroupID.x. Invocation i determines a mask of the checks that failed, and stores it
// with a marker in y[section * 1024 + i]. x: [section][k][64] words, the operands and expected results of a section.
//
// For all devices. The macros PART_* and HAS_* select the sections that are compiled, so that no module needs a feature that the device
// lacks. Run by cpp/dispatch/kernel/feature_trial.cpp, which caches the outcome.
#version 450
#extension GL_EXT_control_flow_attributes : require
#ifdef PART_SUBGROUP
#extension GL_KHR_shader_subgroup_basic : require
#endif
#ifdef HAS_SHUFFLE
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
#ifdef HAS_SHUFFLE_RELATIVE
#extension GL_KHR_shader_subgroup_shuffle_relative : require
#endif
#ifdef HAS_ARITHMETIC
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif
#ifdef HAS_BALLOT
#extension GL_KHR_shader_subgroup_ballot : require
#endif
#ifdef HAS_VOTE
#extension GL_KHR_shader_subgroup_vote : require
#endif
#if defined(HAS_STORAGE16) || defined(HAS_FLOAT16)
#extension GL_EXT_shader_16bit_storage : require
#endif
#ifdef HAS_STORAGE8
#extension GL_EXT_shader_8bit_storage : require
#endif
#ifdef HAS_FLOAT16
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#endif
#ifdef HAS_INT16
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#endif
#ifdef HAS_INT8
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#endif
#if defined(HAS_INT64) || defined(HAS_ATOMIC_INT64)
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#endif
#ifdef HAS_ATOMIC_INT64
#extension GL_EXT_shader_atomic_int64 : require
#endif
#ifdef HAS_ATOMIC_FLOAT
#extension GL_EXT_shader_atomic_float : require
#endif
#ifdef HAS_DOT_PRODUCT
#extension GL_EXT_spirv_intrinsics : require
#endif
#ifdef PART_MATRIX
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#endif
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint FIRST_SECTION = 0u;
layout(constant_id = 2) const uint ECHO = 1u;
layout(constant_id = 3) const uint SUBGROUP = 0u;  // expected size of subgroups; 0: any
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) writeonly buffer Y { uint y[]; };
layout(binding = 2) coherent buffer Z { uint z[]; };  // counters and elements of other types; each section uses its own words
layout(push_constant) uniform parameter { uint words[PUSH_WORDS]; } p;
#ifdef HAS_STORAGE16
layout(binding = 2) coherent buffer Z16 { uint16_t z16[]; };
#endif
#ifdef HAS_STORAGE8
layout(binding = 2) coherent buffer Z8 { uint8_t z8[]; };
#endif
#ifdef HAS_ATOMIC_INT64
layout(binding = 2) coherent buffer Z64 { uint64_t z64[]; };
#endif
#ifdef HAS_ATOMIC_FLOAT
layout(binding = 2) coherent buffer ZF { float zf[]; };
#endif
#ifdef PART_MATRIX
layout(binding = 2) coherent buffer ZHalf { float16_t z_half[]; };
layout(binding = 2) coherent buffer ZFloat { float z_float[]; };
#endif
#ifdef HAS_DOT_PRODUCT
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6019, 6018], id = 4450)
int dot_signed(int a, int b, spirv_literal int vector_format);
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6019, 6018], id = 4451)
uint dot_unsigned(uint a, uint b, spirv_literal int vector_format);
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6019, 6018], id = 4453)
int dot_accumulated(int a, int b, int c, spirv_literal int vector_format);
#endif

#ifndef SHARED_WORDS
#define SHARED_WORDS 64u
#endif
shared uint s[SHARED_WORDS];
shared uint counter;

const uint kMarker = 0x600d0000u;

uint operand(uint k, uint i) { return x[((FIRST_SECTION + gl_WorkGroupID.x) * 16u + k) * 64u + i]; }
float real_operand(uint k, uint i) { return uintBitsToFloat(operand(k, i)); }
// Returns bit `bit` if the condition does not hold.
uint expect(bool condition, uint bit) { return condition ? 0u : 1u << bit; }

#ifdef PART_FEATURES
// 0: integer arithmetic, and packed pairs of fp16.
uint check_integers(uint i) {
  const int a = int(operand(0u, i)), b = int(operand(1u, i));
  const uint ua = uint(a), ub = uint(b), amount = i & 31u;
  uint failed = expect(uint(a / b) == operand(2u, i), 0u) | expect(ua / ub == operand(3u, i), 1u) | expect(ua % ub == operand(4u, i), 2u);
  uint high, low;
  umulExtended(ua, ub, high, low);
  failed |= expect(high == operand(5u, i) && low == ua * ub, 3u);
  failed |= expect(uint(bitfieldExtract(a, int(i & 15u), 7)) == operand(6u, i), 4u);
  failed |= expect(uint(a >> amount) == operand(7u, i), 5u) | expect(ua >> amount == operand(8u, i), 6u);
  failed |= expect(uint(findMSB(ua)) == operand(9u, i), 7u) | expect(uint(bitCount(ua)) == operand(10u, i), 8u);
  const vec2 pair = unpackHalf2x16(operand(11u, i));
  failed |= expect(floatBitsToUint(pair.x) == operand(12u, i) && floatBitsToUint(pair.y) == operand(13u, i), 9u);
  failed |= expect(packHalf2x16(vec2(real_operand(12u, i), real_operand(13u, i))) == operand(11u, i), 10u);
  uint carry;
  const uint sum = uaddCarry(ua, ub, carry);
  failed |= expect(sum == ua + ub && carry == uint(sum < ua), 11u);
  const uvec4 both = uvec4(ua, ub, ua, 255u) & uvec4(ub, 65535u, 7u, ub);
  failed |= expect(both.x == (ua & ub) && both.y == ub % 65536u && both.z == ua % 8u && both.w == ub % 256u, 12u);
  failed |= expect((floatBitsToUint(exp(uintBitsToFloat(operand(14u, i)))) & 0x7fffffffu) > 0x7f800000u, 16u);  // exp of NaN
  return failed;
}
#endif  // PART_FEATURES

#ifdef PART_WORKGROUP
// 1: shared memory of SHARED_WORDS words, with barriers and all invocations of the workgroup; push and specialization constants.
uint check_workgroup(uint i) {
  const uint size = gl_WorkGroupSize.x;
  for (uint k = i; k < SHARED_WORDS; k += size) s[k] = k * 2654435761u;
  barrier();
  uint failed = 0u;
  for (uint k = i; k < SHARED_WORDS; k += size) {
    const uint other = SHARED_WORDS - 1u - k;
    failed |= expect(s[other] == other * 2654435761u, 0u);
  }
  barrier();
  // Rounds of exchange between neighbours. A missing barrier lets an invocation read the round before or after.
  for (uint round = 0u; round < 4u; ++round) {
    s[i % SHARED_WORDS] = round * 65536u + i;
    barrier();
    const uint other = (i + size / 2u + 1u) % size;
    failed |= expect(SHARED_WORDS < size || s[other] == round * 65536u + other, 1u);
    barrier();
  }
  failed |= expect(ECHO == 0x5eedu, 2u);
  for (uint k = 0u; k < PUSH_WORDS; ++k) failed |= expect(p.words[k] == k * 97u + 5u, 3u);
  return failed;
}
#endif  // PART_WORKGROUP

#ifdef PART_FEATURES
// 2: atomic operations on shared memory and on a buffer.
uint check_atomics(uint i) {
  const uint size = gl_WorkGroupSize.x;
  if (i == 0u) counter = 0u;
  barrier();
  s[i] = 0u;
  barrier();
  const uint ticket = atomicAdd(counter, 1u), buffer_ticket = atomicAdd(z[0], 1u);
  atomicAdd(s[ticket % size], 1u);
  atomicMax(z[1], i * 3u);
  atomicMin(z[2], 1000u - i);
  atomicOr(z[3], 1u << (i & 31u));
  atomicCompSwap(z[5], 7u, 9u);  // z[5] is 0, so nothing is stored
  // Adds floats with compare and swap, as the engine's scatters do.
  uint old = z[4], seen;
  for (uint attempt = 0u; attempt < 100000u; ++attempt) {
    seen = atomicCompSwap(z[4], old, floatBitsToUint(uintBitsToFloat(old) + 1.0));
    if (seen == old) break;
    old = seen;
  }
  atomicAdd(z[64u + min(buffer_ticket, size - 1u)], 1u);
  memoryBarrierBuffer();
  barrier();
  uint failed = expect(counter == size && s[i] == 1u, 0u);
  failed |= expect(atomicOr(z[0], 0u) == size && atomicOr(z[64u + i], 0u) == 1u, 1u);
  failed |= expect(atomicOr(z[1], 0u) == (size - 1u) * 3u, 2u) | expect(atomicOr(z[2], 0u) == 1001u - size, 3u);
  failed |= expect(atomicOr(z[3], 0u) == 0xffffffffu, 4u);
  failed |= expect(uintBitsToFloat(atomicOr(z[4], 0u)) == float(size) && atomicOr(z[5], 0u) == 0u, 5u);
  return failed;
}
#endif  // PART_FEATURES

#ifdef PART_SUBGROUP
// 3 and 4: subgroups of the size that the driver chooses, and of the required size. Each invocation knows only its own lane.
uint check_subgroup_size() {
  const uint size = gl_SubgroupSize, lane = gl_SubgroupInvocationID;
  uint failed = expect((size == SUBGROUP || SUBGROUP == 0u) && lane < size && gl_SubgroupID < gl_NumSubgroups, 0u);
#ifdef HAS_BALLOT
  failed |= expect(subgroupBallotBitCount(subgroupBallot(true)) == size, 1u);
  failed |= expect(subgroupBallotBitCount(subgroupBallot(subgroupElect())) == 1u, 3u);
#endif
#ifdef HAS_ARITHMETIC
  failed |= expect(subgroupAdd(1u) == size && subgroupMax(lane) == size - 1u, 2u);
#endif
  return failed;
}

uint check_subgroup_operations() {
  uint failed = 0u;
  const uint size = gl_SubgroupSize, lane = gl_SubgroupInvocationID, own = lane * lane + 7u;
#ifdef HAS_SHUFFLE
  const uint target = (lane * 5u + 3u) % size;
  failed |= expect(subgroupShuffle(own, target) == target * target + 7u, 0u);
  for (uint mask = 1u; mask < size; mask *= 2u) {
    const uint other = lane ^ mask;
    failed |= expect(subgroupShuffleXor(own, mask) == other * other + 7u, 1u);
    failed |= expect(subgroupShuffleXor(float(own), mask) == float(other * other + 7u), 2u);
  }
#endif
#ifdef HAS_SHUFFLE_RELATIVE
  const uint above = subgroupShuffleDown(own, 1u), below = subgroupShuffleUp(own, 1u);
  failed |= expect(lane == size - 1u || above == (lane + 1u) * (lane + 1u) + 7u, 3u);
  failed |= expect(lane == 0u || below == (lane - 1u) * (lane - 1u) + 7u, 4u);
#endif
#ifdef HAS_ARITHMETIC
  failed |= expect(subgroupAdd(lane) == size * (size - 1u) / 2u, 8u);
  failed |= expect(subgroupAdd(float(lane)) == float(size * (size - 1u) / 2u), 9u);
  failed |= expect(subgroupMax(float(own)) == float((size - 1u) * (size - 1u) + 7u) && subgroupMin(own) == 7u, 10u);
  failed |= expect(subgroupInclusiveAdd(lane) == lane * (lane + 1u) / 2u, 11u);
  failed |= expect(subgroupExclusiveAdd(lane) * 2u == lane * lane - lane, 12u);
#endif
#ifdef HAS_BALLOT
  const uvec4 odd = subgroupBallot((lane & 1u) != 0u);
  failed |= expect(subgroupBallotBitCount(odd) == size / 2u && subgroupBallotBitExtract(odd, lane) == ((lane & 1u) != 0u), 16u);
  failed |= expect(subgroupBallotExclusiveBitCount(odd) == lane / 2u && subgroupBallotInclusiveBitCount(odd) == (lane + 1u) / 2u, 16u);
  failed |= expect(subgroupBroadcast(own, 1u) == 8u && subgroupBroadcastFirst(own) == 7u, 17u);
#endif
#ifdef HAS_VOTE
  failed |= expect(subgroupAll(lane < size) && !subgroupAll(lane > 0u) && subgroupAny(lane == size - 1u) && !subgroupAny(lane == size), 24u);
#endif
  return failed;
}
#endif  // PART_SUBGROUP

#ifdef PART_FEATURES
// 5: neighbouring elements of 8 bits, stored by different invocations.
uint check_storage8(uint i) {
  uint failed = 0u;
#ifdef HAS_STORAGE8
  for (uint k = 0u; k < 5u; ++k) z8[1024u + i * 5u + k] = uint8_t(i * 37u + k);
  memoryBarrierBuffer();
  barrier();
  const uint other = (i + 17u) % 64u;
  for (uint k = 0u; k < 5u; ++k) failed |= expect(uint(z8[1024u + other * 5u + k]) == ((other * 37u + k) & 255u), 0u);
#endif
  return failed;
}

// 6: neighbouring elements of 16 bits, at odd indices too.
uint check_storage16(uint i) {
  uint failed = 0u;
#ifdef HAS_STORAGE16
  for (uint k = 0u; k < 3u; ++k) z16[1024u + i * 3u + k] = uint16_t(i * 977u + k);
  memoryBarrierBuffer();
  barrier();
  const uint other = (i + 17u) % 64u;
  for (uint k = 0u; k < 3u; ++k) failed |= expect(uint(z16[1024u + other * 3u + k]) == ((other * 977u + k) & 65535u), 0u);
#endif
  return failed;
}

// 7: fp16 arithmetic. Operands and results are fp32 numbers that fp16 represents exactly.
uint check_float16(uint i) {
  uint failed = 0u;
#ifdef HAS_FLOAT16
  const float16_t a = float16_t(real_operand(0u, i)), b = float16_t(real_operand(1u, i));
  precise float16_t sum = a + b, product = a * b;
  failed |= expect(float(sum) == real_operand(2u, i), 0u) | expect(float(product) == real_operand(3u, i), 1u);
  failed |= expect(isinf(float(exp(float16_t(real_operand(4u, i))))), 2u);  // above 65,504
  failed |= expect((a < b) == (real_operand(0u, i) < real_operand(1u, i)), 3u);
#endif
  return failed;
}

// 8: integers of 16 and 8 bits.
uint check_int16(uint i) {
  uint failed = 0u;
#ifdef HAS_INT16
  const int16_t a = int16_t(int(operand(0u, i))), b = int16_t(int(operand(1u, i)));
  failed |= expect(uint(int(a * b)) == operand(2u, i) && uint(int(a >> int16_t(3))) == operand(3u, i) && (a < b) == (operand(4u, i) != 0u), 0u);
#endif
  return failed;
}

uint check_int8(uint i) {
  uint failed = 0u;
#ifdef HAS_INT8
  const int8_t a = int8_t(int(operand(0u, i))), b = int8_t(int(operand(1u, i)));
  failed |= expect(uint(int(a * b)) == operand(2u, i) && uint(int(a >> int8_t(3))) == operand(3u, i) && (a < b) == (operand(4u, i) != 0u), 0u);
#endif
  return failed;
}

// 10: 64-bit integers; 11: atomics on them.
uint check_int64(uint i) {
  uint failed = 0u;
#ifdef HAS_INT64
  const int64_t a = int64_t(uint64_t(operand(0u, i)) | uint64_t(operand(1u, i)) << 32), b = int64_t(uint64_t(operand(2u, i)) | uint64_t(operand(3u, i)) << 32);
  const uint64_t sum = uint64_t(a + b), product = uint64_t(a * b), shifted = uint64_t(a >> (i & 63u)), quotient = uint64_t(a / b);
  failed |= expect(uint(sum) == operand(4u, i) && uint(sum >> 32) == operand(5u, i), 0u);
  failed |= expect(uint(product) == operand(6u, i) && uint(product >> 32) == operand(7u, i), 1u);
  failed |= expect(uint(shifted) == operand(8u, i) && uint(shifted >> 32) == operand(9u, i), 2u);
  failed |= expect(uint(quotient) == operand(10u, i) && uint(quotient >> 32) == operand(11u, i), 3u);
  failed |= expect((a < b) == (operand(12u, i) != 0u) && (uint64_t(a) < uint64_t(b)) == (operand(13u, i) != 0u), 4u);
  failed |= expect(uint(uint64_t(int64_t(int(operand(0u, i)))) >> 32) == uint(int(operand(0u, i)) >> 31), 5u);
  failed |= expect(floatBitsToUint(float((a >> 40) << 20)) == operand(14u, i), 6u);
#endif
  return failed;
}

uint check_atomic_int64(uint i) {
  uint failed = 0u;
#ifdef HAS_ATOMIC_INT64
  atomicAdd(z64[700], uint64_t(0x1ffffffffUL));
  memoryBarrierBuffer();
  barrier();
  failed |= expect(z64[700] == uint64_t(0x1ffffffffUL) * uint64_t(64), 0u);
#endif
  return failed;
}

// 12: float64.
uint check_float64(uint i) {
  uint failed = 0u;
#ifdef HAS_FLOAT64
  const double a = packDouble2x32(uvec2(operand(0u, i), operand(1u, i))), b = packDouble2x32(uvec2(operand(2u, i), operand(3u, i)));
  precise double sum = a + b, product = a * b;
  failed |= expect(unpackDouble2x32(sum) == uvec2(operand(4u, i), operand(5u, i)), 0u);
  failed |= expect(unpackDouble2x32(product) == uvec2(operand(6u, i), operand(7u, i)), 1u);
  failed |= expect(floatBitsToUint(float(a)) == operand(8u, i) && double(float(int(operand(9u, i)))) == double(int(operand(9u, i))), 2u);
#endif
  return failed;
}

// 13: atomic float additions.
uint check_atomic_float(uint i) {
  uint failed = 0u;
#ifdef HAS_ATOMIC_FLOAT
  atomicAdd(zf[640], 0.5);
  memoryBarrierBuffer();
  barrier();
  failed |= expect(zf[640] == 32.0, 0u);
#endif
  return failed;
}

// 14: dot products of four packed integers of 8 bits.
uint check_dot_product(uint i) {
  uint failed = 0u;
#ifdef HAS_DOT_PRODUCT
  failed |= expect(uint(dot_signed(int(operand(0u, i)), int(operand(1u, i)), 0)) == operand(2u, i), 0u);
  failed |= expect(dot_unsigned(operand(0u, i), operand(1u, i), 0) == operand(3u, i), 1u);
  failed |= expect(uint(dot_accumulated(int(operand(0u, i)), int(operand(1u, i)), 1000000, 0)) == operand(2u, i) + 1000000u, 2u);
#endif
  return failed;
}
#endif  // PART_FEATURES

#ifdef PART_MATRIX
// 15: a product of 16 x 16 matrices with a transposed operand, in one subgroup of 32. Operands are small integers.
uint check_matrix(uint i) {
  uint failed = 0u;
  coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> a;
  coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> b;
  coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> c;
  for (uint k = i; k < 256u; k += 32u) z_half[1600u + k] = float16_t(float(k * 7u % 11u) - 5.0);
  for (uint k = i; k < 256u; k += 32u) z_half[1856u + k] = float16_t(float(k * 5u % 13u) - 6.0);
  for (uint k = i; k < 256u; k += 32u) z[1100u + k] = floatBitsToUint(float(k) * 4096.0);
  memoryBarrierBuffer();
  barrier();
  coopMatLoad(a, z_half, 1600u, 16u, gl_CooperativeMatrixLayoutRowMajor);
  coopMatLoad(b, z_half, 1856u, 16u, gl_CooperativeMatrixLayoutColumnMajor);
  coopMatLoad(c, z_float, 1100u, 16u, gl_CooperativeMatrixLayoutRowMajor);
  c = coopMatMulAdd(a, b, c);
  coopMatStore(c, z_float, 1100u, 16u, gl_CooperativeMatrixLayoutRowMajor);
  memoryBarrierBuffer();
  barrier();
  for (uint k = i; k < 256u; k += 32u) {
    const uint row = k / 16u, column = k % 16u;
    float sum = float(k) * 4096.0;
    for (uint j = 0u; j < 16u; ++j) sum += (float((row * 16u + j) * 7u % 11u) - 5.0) * (float((column * 16u + j) * 5u % 13u) - 6.0);
    failed |= expect(uintBitsToFloat(z[1100u + k]) == sum, 0u);
  }
  return failed;
}
#endif  // PART_MATRIX

void main() {
  const uint section = FIRST_SECTION + gl_WorkGroupID.x, i = gl_LocalInvocationID.x;
  uint failed = 0u;
#ifdef PART_FEATURES
  if (section == 0u) failed = check_integers(i);
  if (section == 2u) failed = check_atomics(i);
  if (section == 5u) failed = check_storage8(i);
  if (section == 6u) failed = check_storage16(i);
  if (section == 7u) failed = check_float16(i);
  if (section == 8u) failed = check_int16(i);
  if (section == 9u) failed = check_int8(i);
  if (section == 10u) failed = check_int64(i);
  if (section == 11u) failed = check_atomic_int64(i);
  if (section == 12u) failed = check_float64(i);
  if (section == 13u) failed = check_atomic_float(i);
  if (section == 14u) failed = check_dot_product(i);
#endif
#ifdef PART_WORKGROUP
  failed = check_workgroup(i);
#endif
#ifdef PART_SUBGROUP
  failed = section == 3u ? check_subgroup_size() : check_subgroup_operations();
#endif
#ifdef PART_MATRIX
  failed = check_matrix(i);
#endif
  y[section * 1024u + i] = kMarker ^ failed;
}

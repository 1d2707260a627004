// Driver test: finds the fragment layout of 16 x 16 matrices. Each element of the A operand and of the accumulator contains its own index.
//
// y[invocation * 8 + component]: the elements of A in each invocation; then, from index 256 on, the elements of the accumulator. One
// subgroup of 32.
//
// Requires VK_KHR_cooperative_matrix. Run by cpp/dispatch/kernel/driver_bug_test.cpp, which caches the outcome.
#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
layout(local_size_x = 32) in;
layout(binding = 0) readonly buffer X { float16_t x[]; };
layout(binding = 1) readonly buffer Z { float z[]; };
layout(binding = 2) writeonly buffer Y { float y[]; };

void main() {
  coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> left;
  coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> sums;
  coopMatLoad(left, x, 0, 16, gl_CooperativeMatrixLayoutRowMajor);
  coopMatLoad(sums, z, 0, 16, gl_CooperativeMatrixLayoutRowMajor);
  if (left.length() != 8 || sums.length() != 8) return;
  [[unroll]] for (uint i = 0u; i < 8u; ++i) {
    y[gl_SubgroupInvocationID * 8u + i] = float(left[i]);
    y[256u + gl_SubgroupInvocationID * 8u + i] = sums[i];
  }
}

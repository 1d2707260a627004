// Group reduction of one or two vec4s with one barrier. Include after the workgroup declaration; the workgroup has THREAD_GROUPS groups.
struct Vec4Pair {
  vec4 a, b;
};
#if SUBGROUP
Vec4Pair add_pairs(Vec4Pair s, Vec4Pair t) { return Vec4Pair(s.a + t.a, s.b + t.b); }
vec4 shuffle_xor(vec4 v, uint mask) { return subgroupShuffleXor(v, mask); }
Vec4Pair shuffle_xor(Vec4Pair s, uint mask) { return Vec4Pair(shuffle_xor(s.a, mask), shuffle_xor(s.b, mask)); }
#define PM_SHUFFLE_XOR shuffle_xor
#endif
#include "include/thread_group.glsl"
#if SUBGROUP
// one result per subgroup, double-buffered
const uint kReduceBufferSize = 2u * ((GROUP_THREADS * THREAD_GROUPS + SUBGROUP - 1u) / SUBGROUP);
shared vec4 reduce_buffer[kReduceBufferSize];
PM_DEFINE_GROUP_REDUCE(reduce_sum, vec4, reduce_buffer, pm_sum)
shared Vec4Pair reduce_pair_buffer[kReduceBufferSize];
PM_DEFINE_GROUP_REDUCE(reduce_vec4_pair, Vec4Pair, reduce_pair_buffer, add_pairs)
#else
shared vec4 reduce_buffer[GROUP_THREADS * THREAD_GROUPS + 16u];
PM_DEFINE_GROUP_REDUCE(reduce_sum, vec4, reduce_buffer, pm_sum)
Vec4Pair reduce_vec4_pair(Vec4Pair s) {
  const vec4 a = reduce_sum(s.a);
  return Vec4Pair(a, reduce_sum(s.b));
}
#endif

// Group reduction of one or two vec4s with one barrier. Include after the workgroup declaration; the workgroup has TEAMS groups.
struct Sums {
  vec4 a, b;
};
#if SUBGROUP
Sums added(Sums s, Sums t) { return Sums(s.a + t.a, s.b + t.b); }
vec4 exchanged(vec4 v, uint mask) { return subgroupShuffleXor(v, mask); }
Sums exchanged(Sums s, uint mask) { return Sums(exchanged(s.a, mask), exchanged(s.b, mask)); }
#define PM_SHUFFLE_XOR exchanged
#endif
#include "include/thread_group.glsl"
#if SUBGROUP
const uint kMeeting = 2u * ((TEAM * TEAMS + SUBGROUP - 1u) / SUBGROUP);  // one result per subgroup, double-buffered
shared vec4 meeting[kMeeting];
PM_GATHER(gather_sum, vec4, meeting, pm_sum)
shared Sums meeting_of_two[kMeeting];
PM_GATHER(gather_sums, Sums, meeting_of_two, added)
#else
shared vec4 meeting[TEAM * TEAMS + 16u];
PM_GATHER(gather_sum, vec4, meeting, pm_sum)
Sums gather_sums(Sums s) {
  const vec4 a = gather_sum(s.a);
  return Sums(a, gather_sum(s.b));
}
#endif

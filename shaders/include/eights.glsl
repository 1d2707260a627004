// Eight neighbouring elements of a tensor, whatever their storage: what arrays of EIGHT hold, and the two fours of one. W_FLOAT: float32 in a
// kernel of 16 bits.
#if PM_GRAIN == 2 && !W_FLOAT
#define EIGHT uvec4
vec4 low_of(EIGHT e) { return vec4(pm_unpack_halves(e.x), pm_unpack_halves(e.y)); }
vec4 high_of(EIGHT e) { return vec4(pm_unpack_halves(e.z), pm_unpack_halves(e.w)); }
#else
struct EIGHT { vec4 low, high; };
vec4 low_of(EIGHT e) { return e.low; }
vec4 high_of(EIGHT e) { return e.high; }
#endif

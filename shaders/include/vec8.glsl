// VEC8: an array element of eight values in any storage type. vec8_low() and vec8_high() return its two vec4s. W_FLOAT: fp32 in a 16-bit
// kernel.
#if PM_GRAIN == 2 && !W_FLOAT
#define VEC8 uvec4
vec4 vec8_low(VEC8 e) { return vec4(pm_unpack_halves(e.x), pm_unpack_halves(e.y)); }
vec4 vec8_high(VEC8 e) { return vec4(pm_unpack_halves(e.z), pm_unpack_halves(e.w)); }
#else
struct VEC8 { vec4 low, high; };
vec4 vec8_low(VEC8 e) { return e.low; }
vec4 vec8_high(VEC8 e) { return e.high; }
#endif

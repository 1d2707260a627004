// A vec8 with any storage type: EIGHT is the array element; low_of() and high_of() return its two vec4s. W_FLOAT: fp32 in a 16-bit kernel.
#if PM_GRAIN == 2 && !W_FLOAT
#define EIGHT uvec4
vec4 low_of(EIGHT e) { return vec4(pm_unpack_halves(e.x), pm_unpack_halves(e.y)); }
vec4 high_of(EIGHT e) { return vec4(pm_unpack_halves(e.z), pm_unpack_halves(e.w)); }
#else
struct EIGHT { vec4 low, high; };
vec4 low_of(EIGHT e) { return e.low; }
vec4 high_of(EIGHT e) { return e.high; }
#endif

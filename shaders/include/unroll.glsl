// Unrolled loops over registers; not unrolled with EMULATED, since drivers take minutes to compile the unrolled emulation.
#ifndef PM_UNROLL_GLSL
#define PM_UNROLL_GLSL
#if EMULATED
#define FOR(i, count) [[dont_unroll]] for (uint i = 0u; i < (count); ++i)
#else
#define FOR(i, count) [[unroll]] for (uint i = 0u; i < (count); ++i)
#endif
#endif

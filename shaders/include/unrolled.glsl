// Loops over what an invocation holds, unrolled but where units are emulated: drivers take minutes for the text of all units' products.
#ifndef PM_UNROLLED_GLSL
#define PM_UNROLLED_GLSL
#if EMULATED
#define FOR(i, count) [[dont_unroll]] for (uint i = 0u; i < (count); ++i)
#else
#define FOR(i, count) [[unroll]] for (uint i = 0u; i < (count); ++i)
#endif
#endif

// Buffers, loads and stores of the GEMM and convolution kernels for floats and integers. X_VEC4, Y_VEC4: adjacent channels in aligned
// vec4s. Packed weights are vec4s; unpacked weights (W_STRIDED) are vec4s only with W_VEC4.
#if INTEGER
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) readonly buffer W { uint w[]; };
#define LOAD_X(i) LOAD_INTEGER(x, i)
#define LOAD_X4(i) UNPACK_X(x[(i) >> 2])
#define LOAD_W4(index4) UNPACK_W(w[index4])
#else
#if X_VEC4
layout(binding = 0) readonly buffer X { XFP4 x[]; };
#else
layout(binding = 0) readonly buffer X { XFP x[]; };
#endif
#if W_STRIDED && !W_VEC4
layout(binding = 1) readonly buffer W { WFP w[]; };
#else
layout(binding = 1) readonly buffer W { WFP4 w[]; };
#endif
#define LOAD_X(i) X_AT(i)
#define LOAD_X4(i) X4_AT((i) >> 2)
#define LOAD_W4(index4) W4_AT(index4)
#endif

#if INTEGER && Y_VEC4
layout(binding = 2) writeonly buffer Y { ivec4 y[]; };
#define STORE_Y4(i, v) y[(i) >> 2] = v
#elif INTEGER
layout(binding = 2) buffer Y { int y[]; };
#define STORE_Y(i, v) y[i] = v
#elif Y_VEC4
layout(binding = 2) writeonly buffer Y { YFP4 y[]; };
#define STORE_Y4(i, v) SET_Y4((i) >> 2, v)
#else
layout(binding = 2) buffer Y { YFP y[]; };
#define STORE_Y(i, v) SET_Y(i, v)
#endif

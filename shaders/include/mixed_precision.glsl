// Buffers of mixed precision: x, w, b, y and residual have the kernel's storage type, or fp32 if X_FLOAT, W_FLOAT, B_FLOAT, Y_FLOAT or
// R_FLOAT is set. Include after include/tensor.glsl.
#ifndef PM_MIXED_PRECISION_GLSL
#define PM_MIXED_PRECISION_GLSL

#if X_FLOAT
#define XFP float
#define XFP4 vec4
#define X_AT(i) x[i]
#define X4_AT(i) x[i]
#else
#define XFP sfp
#define XFP4 sfpvec4
#define X_AT(i) pm_load(x, i)
#define X4_AT(i) pm_load_vec4(x, i)
#endif

#if W_FLOAT
#define WFP float
#define WFP4 vec4
#define W_AT(i) w[i]
#define W4_AT(i) w[i]
#else
#define WFP sfp
#define WFP4 sfpvec4
#define W_AT(i) pm_load(w, i)
#define W4_AT(i) pm_load_vec4(w, i)
#endif

#if B_FLOAT
#define BFP float
#define B_AT(i) b[i]
#else
#define BFP sfp
#define B_AT(i) pm_load(b, i)
#endif

#if R_FLOAT
#define RFP float
#define RFP4 vec4
#define R_AT(i) residual[i]
#define R4_AT(i) residual[i]
#else
#define RFP sfp
#define RFP4 sfpvec4
#define R_AT(i) pm_load(residual, i)
#define R4_AT(i) pm_load_vec4(residual, i)
#endif

#if Y_FLOAT
#define YFP float
#define YFP4 vec4
#define SET_Y(i, v) y[i] = v
#define SET_Y4(i, v) y[i] = v
#else
#define YFP sfp
#define YFP4 sfpvec4
#define SET_Y(i, v) pm_store(y, i, v)
#define SET_Y4(i, v) pm_store_vec4(y, i, v)
#endif

#endif

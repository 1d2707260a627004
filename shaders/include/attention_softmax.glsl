// Softmax normalisation shared by the attention kernels. ZERO_EMPTY: queries with no visible key give 0, otherwise NaN.
#ifndef PM_ATTENTION_SUMS_GLSL
#define PM_ATTENTION_SUMS_GLSL
#define minus_infinity uintBitsToFloat(0xff800000u)

// Returns the maximum to subtract from scores; 0 if no key was visible, to avoid -inf - -inf.
float softmax_shift(float row_max) { return row_max == minus_infinity ? 0.0 : row_max; }

// Returns 1 / sum, the factor that normalises the weighted sums.
float inverse_sum(float sum) { return ZERO_EMPTY != 0 && sum == 0.0 ? 0.0 : 1.0 / sum; }
#endif

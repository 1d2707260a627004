// How the scores and sums of a row of attention become its results. ZERO_EMPTY: a row that sees no key is zero, otherwise NaN.
#ifndef PM_ATTENTION_SUMS_GLSL
#define PM_ATTENTION_SUMS_GLSL
#define minus_infinity uintBitsToFloat(0xff800000u)

// The number that scores are taken relative to: the largest score, or 0 for a row that has seen nothing.
float reference_of(float largest) { return largest == minus_infinity ? 0.0 : largest; }

// The factor by which the sums of a row become its results.
float share_of(float sum) { return ZERO_EMPTY != 0 && sum == 0.0 ? 0.0 : 1.0 / sum; }
#endif

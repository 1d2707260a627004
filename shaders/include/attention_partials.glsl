// Merges split-K partials of attention. The partial of a query has `size` weighted sums, the score maximum and the sum of exponentials:
// `size` + 2 floats of `parts`. Include after buffer Parts.
#ifndef PM_ATTENTION_PARTS_GLSL
#define PM_ATTENTION_PARTS_GLSL
#include "include/attention_softmax.glsl"

const uint kAtOnce = 8u;  // number of partials loaded at once, to hide the latency of dependent loads

struct Whole {
  vec4 sums;             // unnormalised outputs column .. column + 3
  float reference, sum;  // the maximum that was subtracted from the scores, and the sum of exponentials
};

// Merges the `count` partials of a query; the first is at index `first`.
Whole whole_of(uint first, uint count, uint size, uint column) {
  Whole whole = Whole(vec4(0.0), 0.0, 0.0);
  float largest = minus_infinity;
  for (uint begin = 0u; begin < count; begin += kAtOnce) {
    float most[kAtOnce], shares[kAtOnce];
    vec4 fours[kAtOnce];
    [[unroll]] for (uint i = 0u; i < kAtOnce; ++i) {
      const uint at = first + min(begin + i, count - 1u) * (size + 2u);
      const bool is_part = begin + i < count;
      most[i] = is_part ? parts[at + size] : minus_infinity;
      shares[i] = is_part ? parts[at + size + 1u] : 0.0;
      fours[i] = vec4(0.0);
      [[unroll]] for (uint j = 0u; j < 4u; ++j)
        if (is_part && column + j < size) fours[i][j] = parts[at + column + j];
    }
    const float before = largest;
    [[unroll]] for (uint i = 0u; i < kAtOnce; ++i) largest = max(largest, most[i]);
    whole.reference = reference_of(largest);
    const float kept = exp(before - whole.reference);
    whole.sum *= kept;
    whole.sums *= kept;
    [[unroll]] for (uint i = 0u; i < kAtOnce; ++i) {
      const float factor = exp(most[i] - whole.reference);
      whole.sum += shares[i] * factor;
      whole.sums += fours[i] * factor;
    }
  }
  return whole;
}
#endif

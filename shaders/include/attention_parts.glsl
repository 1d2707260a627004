// The results of an attention over parts of the keys, put together. A row's part is the sums of its values, its largest score and its sum of
// exponentials: `size` + 2 numbers of `parts`. After the buffer Parts.
#ifndef PM_ATTENTION_PARTS_GLSL
#define PM_ATTENTION_PARTS_GLSL
#include "include/attention_sums.glsl"

const uint kAtOnce = 8u;  // parts that are read before the first of them is needed, since one after another is what the time would go into

struct Whole {
  vec4 sums;             // of four values from `column` on
  float reference, sum;  // the number that scores are taken relative to, and the sum of the exponentials
};

// Puts the `count` parts of a row together, the first of which begins at `first`.
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

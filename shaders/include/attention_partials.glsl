// Merges split-K partials of attention. The partial of a query has `size` weighted sums, the score maximum and the sum of exponentials:
// `size` + 2 floats of `partials`. Include after buffer Partials.
#ifndef PM_ATTENTION_PARTS_GLSL
#define PM_ATTENTION_PARTS_GLSL
#include "include/attention_softmax.glsl"

const uint kLoadsInFlight = 8u;  // number of partials loaded at once, to hide latency

struct MergedPartials {
  vec4 sums;         // unnormalised outputs column .. column + 3
  float shift, sum;  // the maximum that was subtracted from the scores, and the sum of exponentials
};

// Merges the `count` partials of a query; the first is at index `first`.
MergedPartials merge_partials(uint first, uint count, uint size, uint column) {
  MergedPartials merged_result = MergedPartials(vec4(0.0), 0.0, 0.0);
  float row_max = minus_infinity;
  for (uint begin = 0u; begin < count; begin += kLoadsInFlight) {
    float partial_max[kLoadsInFlight], partial_sums[kLoadsInFlight];
    vec4 loaded[kLoadsInFlight];
    [[unroll]] for (uint i = 0u; i < kLoadsInFlight; ++i) {
      const uint at = first + min(begin + i, count - 1u) * (size + 2u);
      const bool in_range = begin + i < count;
      partial_max[i] = in_range ? partials[at + size] : minus_infinity;
      partial_sums[i] = in_range ? partials[at + size + 1u] : 0.0;
      loaded[i] = vec4(0.0);
      [[unroll]] for (uint j = 0u; j < 4u; ++j)
        if (in_range && column + j < size) loaded[i][j] = partials[at + column + j];
    }
    const float before = row_max;
    [[unroll]] for (uint i = 0u; i < kLoadsInFlight; ++i) row_max = max(row_max, partial_max[i]);
    merged_result.shift = softmax_shift(row_max);
    const float rescale = exp(before - merged_result.shift);
    merged_result.sum *= rescale;
    merged_result.sums *= rescale;
    [[unroll]] for (uint i = 0u; i < kLoadsInFlight; ++i) {
      const float factor = exp(partial_max[i] - merged_result.shift);
      merged_result.sum += partial_sums[i] * factor;
      merged_result.sums += loaded[i] * factor;
    }
  }
  return merged_result;
}
#endif

// Samples the next token of each sequence: the argmax, or a random candidate after top-k and top-p. One workgroup per sequence.
// Weights are summed as integers, and the random number depends only on the seed and the token's position, so the result does not depend
// on the rest of the batch or on the order of invocations.
#define READS_BEST 1
layout(local_size_x = 256) in;
layout(binding = 0) readonly buffer Logits { sfp logits[]; };           // [batch, vocab_size]
layout(binding = 6) readonly buffer Best { uvec2 best[]; };             // [batch, chunks]: results of logits_argmax.comp
// [batch, chunks, 1 + tokens per chunk], from sampling_candidates.comp: number of candidates, and their token ids. One buffer, because some
// devices allow a kernel only eight.
layout(binding = 7) readonly buffer Candidates { uint candidates[]; };
layout(push_constant) uniform Parameters { uint vocab_size, batch, num_chunks, slots, advance; };
#include "store_token.glsl"

const uint kBins = kInvocations;  // radix bins, one per byte value
const uint kCached = 1024u;       // number of candidates that are cached in shared memory
shared uint highs[kBins], lows[kBins];
shared uvec2 scanned[kInvocations];
shared uint group_result[3];
shared uint ends[kInvocations];  // inclusive prefix sum of the candidate counts of the chunks
shared uint cached_tokens[kCached];
shared float cached_scores[kCached];
uint count;  // number of candidates of the sequence

// Philox 2x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
uint random_bits(uvec2 counter, uint key) {
  for (uint i = 0u; i < 10u; ++i) {
    uint high, low;
    umulExtended(0xd256d193u, counter.x, high, low);
    counter = uvec2(high ^ key ^ counter.y, low);
    key += 0x9e3779b9u;
  }
  return counter.x;
}

// Arithmetic on sums of weights, which are stored as (high, low) with kLow bits in `low`.
uvec2 add_sums(uvec2 a, uvec2 b) {
  const uint low = a.y + b.y;
  return uvec2(a.x + b.x + (low >> kLow), low & kLowMask);
}
uvec2 subtract_sums(uvec2 a, uvec2 b) { return uvec2(a.x - b.x - (a.y < b.y ? 1u : 0u), (a.y - b.y) & kLowMask); }
bool is_less(uvec2 a, uvec2 b) { return a.x < b.x || (a.x == b.x && a.y < b.y); }
float sum_to_float(uvec2 sum) { return float(sum.x) * float(1u << kLow) + float(sum.y); }

// Computes the inclusive prefix sum of `value` over the invocations; scanned[i] is the sum up to invocation i.
void prefix_sum(uvec2 value) {
  barrier();  // wait for earlier reads of `scanned`
  scanned[lane] = value;
  for (uint step = 1u; step < kInvocations; step *= 2u) {
    barrier();
    const uvec2 more = lane >= step ? scanned[lane - step] : uvec2(0u);
    barrier();
    scanned[lane] = add_sums(scanned[lane], more);
  }
  barrier();
}

// Computes `ends` and `count`. There are at most as many chunks as invocations.
void scan_candidate_counts() {
  const uint num_candidates = lane < num_chunks ? candidates[(sequence * num_chunks + lane) * (chunk_size() + 1u)] : 0u;
  prefix_sum(uvec2(num_candidates >> kLow, num_candidates & kLowMask));
  ends[lane] = scanned[lane].x << kLow | scanned[lane].y;
  barrier();
  count = ends[num_chunks - 1u];
}

// Returns the token of the sequence's i-th candidate.
uint candidate(uint i) {
  uint low = 0u, high = num_chunks - 1u;  // binary search for the chunk that contains candidate i
  while (low < high) {
    const uint middle = (low + high) / 2u;
    if (ends[middle] > i) high = middle;
    else low = middle + 1u;
  }
  return candidates[(sequence * num_chunks + low) * (chunk_size() + 1u) + 1u + i - (low == 0u ? 0u : ends[low - 1u])];
}

void cache_candidates() {
  for (uint i = lane; i < min(count, kCached); i += kInvocations) {
    cached_tokens[i] = candidate(i);
    cached_scores[i] = score_token(cached_tokens[i]);
  }
  barrier();
}

float candidate_score(uint i) { return i < kCached ? cached_scores[i] : score_token(candidate(i)); }
uint candidate_token(uint i) { return i < kCached ? cached_tokens[i] : candidate(i); }

uvec2 split_weight(float score, float top) {
  const uint weight = weight_of(score, top);
  return uvec2(weight >> kLow, weight & kLowMask);
}

// Radix select: returns the largest key >= min_key such that at least `target` candidates (by_weight: a total weight of at least `target`)
// have this key or a larger one. Each of the four passes determines one byte of the key, from the most significant on.
uint select_threshold(float target, uint min_key, bool by_weight, float top) {
  uint prefix = 0u;
  uvec2 above = uvec2(0u);
  for (uint byte = 0u; byte < 4u; ++byte) {
    const uint shift = 24u - 8u * byte;
    barrier();  // wait for earlier reads of the bins
    highs[lane] = 0u;
    lows[lane] = 0u;
    if (lane == 0u) group_result[0] = 0u;
    barrier();
    for (uint i = lane; i < count; i += kInvocations) {
      const float score = candidate_score(i);
      const uint key = key_of(score);
      if (key < min_key || (byte > 0u && (key >> (shift + 8u)) != prefix)) continue;
      const uvec2 weight = by_weight ? split_weight(score, top) : uvec2(0u, 1u);
      const uint bin = kBins - 1u - (key >> shift & 0xffu);  // in descending key order
      atomicAdd(highs[bin], weight.x);
      atomicAdd(lows[bin], weight.y);
    }
    barrier();
    prefix_sum(add_sums(uvec2(highs[lane], 0u), uvec2(0u, lows[lane])));
    if (sum_to_float(add_sums(above, scanned[lane])) >= target) atomicMax(group_result[0], kBins - 1u - lane);
    barrier();
    const uint bin = group_result[0], rank = kBins - 1u - bin;
    if (rank > 0u) above = add_sums(above, scanned[rank - 1u]);
    prefix = prefix << 8 | bin;
  }
  return max(prefix, min_key);
}

// Returns the range [x, y) of candidates of this invocation. Ranges are consecutive, which preserves the token order.
uvec2 thread_candidates() {
  const uint each = (count + kInvocations - 1u) / kInvocations, first = min(lane * each, count);
  return uvec2(first, min(first + each, count));
}

// Returns the total weight of this invocation's candidates with keys >= min_key.
uvec2 thread_weight(uint min_key, float top) {
  const uvec2 range = thread_candidates();
  uvec2 sum = uvec2(0u);
  for (uint i = range.x; i < range.y; ++i) {
    const float score = candidate_score(i);
    if (key_of(score) >= min_key) sum = add_sums(sum, split_weight(score, top));
  }
  return sum;
}

// Samples a candidate with key >= min_key with probability proportional to its weight: inverts the cumulative sum of the weights in token
// order at bits / 2^32 of the total.
uint sample_candidate(uint min_key, float top, uint bits) {
  const uvec2 weight = thread_weight(min_key, top);
  prefix_sum(weight);
  const uvec2 sum = scanned[kInvocations - 1u];
  // target = sum * bits / 2^32, in 64 bits.
  const uint sum_low = sum.x << kLow | sum.y, sum_high = sum.x >> (32u - kLow);
  uint a_high, a_low, b_high, b_low, carry;
  umulExtended(sum_low, bits, a_high, a_low);
  umulExtended(sum_high, bits, b_high, b_low);
  const uint target_low = uaddCarry(b_low, a_high, carry), target_high = b_high + carry;
  const uvec2 target = uvec2(target_high << (32u - kLow) | target_low >> kLow, target_low & kLowMask);
  if (lane == 0u) group_result[0] = kNoToken;
  barrier();
  const uvec2 before = lane == 0u ? uvec2(0u) : scanned[lane - 1u];
  if (!is_less(target, before) && is_less(target, scanned[lane])) {
    const uvec2 range = thread_candidates();
    uvec2 left = subtract_sums(target, before);
    for (uint i = range.x; i < range.y; ++i) {
      const float score = candidate_score(i);
      if (key_of(score) < min_key) continue;
      const uvec2 weight = split_weight(score, top);
      if (is_less(left, weight)) {
        group_result[0] = candidate_token(i);
        break;
      }
      left = subtract_sums(left, weight);
    }
  }
  barrier();
  return group_result[0];
}

void main() {
  sequence = gl_WorkGroupID.x;
  lane = gl_LocalInvocationID.x;
  params = sampling_params[sequence];
  const uvec2 top = reduce_chunk_argmax();
  uint token = top.y;
  const bool is_valid = is_finite_key(top.x);
  if (is_valid && params.temperature > 0.0) {
    const float score = float_of(top.x);
    uint min_key = 0x00800000u;  // the smallest key of a finite float
    scan_candidate_counts();
    cache_candidates();
    if (params.top_k > 0u && params.top_k < vocab_size) min_key = select_threshold(float(params.top_k), min_key, false, score);
    if (params.top_p < 1.0) {
      prefix_sum(thread_weight(min_key, score));
      const float all = sum_to_float(scanned[kInvocations - 1u]);
      min_key = select_threshold(all * params.top_p, min_key, true, score);
    }
    const uint sampled = sample_candidate(min_key, score, random_bits(uvec2(token_position(), params.seed.y), params.seed.x));
    if (sampled != kNoToken) token = sampled;
  }
  if (lane == 0u) store_token(token, is_valid);
}

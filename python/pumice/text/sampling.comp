// Samples the next token of each sequence, one workgroup per sequence: argmax, or a random candidate after top-k and top-p.
// Sums are integers and the random number depends only on the seed and the token's position, so a token does not depend on the batch or
// on the order of invocations.
#define READS_BEST 1
layout(local_size_x = 256) in;
layout(binding = 0) readonly buffer Logits { sfp logits[]; };      // [batch, vocab_size]
layout(binding = 6) readonly buffer Best { uvec2 best[]; };             // [batch, chunks]: results of logits_argmax.comp
layout(binding = 7) readonly buffer Candidates { uint candidates[]; };  // [batch, chunks, tokens per chunk]: from sampling_candidates.comp
layout(binding = 8) readonly buffer Counts { uint counts[]; };          // [batch, chunks]: number of candidates
layout(push_constant) uniform Parameters { uint words, images, stretches, slots, advance; };
#include "store_token.glsl"

const uint kBins = kInvocations;  // one bin per byte value
const uint kKept = 1024u;         // candidates cached in shared memory
shared uint highs[kBins], lows[kBins];
shared uvec2 scanned[kInvocations];
shared uint found[3];
shared uint ends[kInvocations];  // inclusive prefix sum of the candidate counts per chunk
shared uint kept_words[kKept];
shared float kept_scores[kKept];
uint count;  // number of candidates in the sequence

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

// Arithmetic on sums of weights, which are (high, low) pairs with kLow low bits.
uvec2 added(uvec2 a, uvec2 b) {
  const uint low = a.y + b.y;
  return uvec2(a.x + b.x + (low >> kLow), low & kLowMask);
}
uvec2 less_by(uvec2 a, uvec2 b) { return uvec2(a.x - b.x - (a.y < b.y ? 1u : 0u), (a.y - b.y) & kLowMask); }
bool is_less(uvec2 a, uvec2 b) { return a.x < b.x || (a.x == b.x && a.y < b.y); }
float number_of(uvec2 sum) { return float(sum.x) * float(1u << kLow) + float(sum.y); }

// Writes the inclusive prefix sum over the invocations to `scanned`.
void scan(uvec2 own) {
  barrier();  // earlier reads of `scanned` are done
  scanned[lane] = own;
  for (uint step = 1u; step < kInvocations; step *= 2u) {
    barrier();
    const uvec2 more = lane >= step ? scanned[lane - step] : uvec2(0u);
    barrier();
    scanned[lane] = added(scanned[lane], more);
  }
  barrier();
}

// Computes the candidate offsets of the chunks; there are at most as many chunks as invocations.
void read_candidates() {
  const uint own = lane < stretches ? counts[image * stretches + lane] : 0u;
  scan(uvec2(own >> kLow, own & kLowMask));
  ends[lane] = scanned[lane].x << kLow | scanned[lane].y;
  barrier();
  count = ends[stretches - 1u];
}

// Returns the sequence's i-th candidate.
uint candidate(uint i) {
  uint low = 0u, high = stretches - 1u;  // binary search for the first chunk that ends after i
  while (low < high) {
    const uint middle = (low + high) / 2u;
    if (ends[middle] > i) high = middle;
    else low = middle + 1u;
  }
  return candidates[(image * stretches + low) * stretch_words() + i - (low == 0u ? 0u : ends[low - 1u])];
}

void keep_candidates() {
  for (uint i = lane; i < min(count, kKept); i += kInvocations) {
    kept_words[i] = candidate(i);
    kept_scores[i] = score_of(kept_words[i]);
  }
  barrier();
}

float candidate_score(uint i) { return i < kKept ? kept_scores[i] : score_of(candidate(i)); }
uint candidate_word(uint i) { return i < kKept ? kept_words[i] : candidate(i); }

uvec2 weight_parts(float score, float top) {
  const uint weight = weight_of(score, top);
  return uvec2(weight >> kLow, weight & kLowMask);
}

// Radix select: returns the largest key >= `least` that keeps `wanted` candidates, or a total weight of `wanted` if by_weight.
uint threshold(float wanted, uint least, bool by_weight, float top) {
  uint prefix = 0u;
  uvec2 above = uvec2(0u);
  for (uint byte = 0u; byte < 4u; ++byte) {
    const uint shift = 24u - 8u * byte;
    barrier();  // earlier reads of the bins are done
    highs[lane] = 0u;
    lows[lane] = 0u;
    if (lane == 0u) found[0] = 0u;
    barrier();
    for (uint i = lane; i < count; i += kInvocations) {
      const float score = candidate_score(i);
      const uint key = key_of(score);
      if (key < least || (byte > 0u && (key >> (shift + 8u)) != prefix)) continue;
      const uvec2 weight = by_weight ? weight_parts(score, top) : uvec2(0u, 1u);
      const uint bin = kBins - 1u - (key >> shift & 0xffu);  // in descending key order
      atomicAdd(highs[bin], weight.x);
      atomicAdd(lows[bin], weight.y);
    }
    barrier();
    scan(added(uvec2(highs[lane], 0u), uvec2(0u, lows[lane])));
    if (number_of(added(above, scanned[lane])) >= wanted) atomicMax(found[0], kBins - 1u - lane);
    barrier();
    const uint bin = found[0], place = kBins - 1u - bin;
    if (place > 0u) above = added(above, scanned[place - 1u]);
    prefix = prefix << 8 | bin;
  }
  return max(prefix, least);
}

// Returns the invocation's candidates, [x, y): consecutive ranges keep the token order across invocations.
uvec2 own_candidates() {
  const uint each = (count + kInvocations - 1u) / kInvocations, first = min(lane * each, count);
  return uvec2(first, min(first + each, count));
}

// Returns the total weight of the invocation's candidates with keys >= `least`.
uvec2 own_weight(uint least, float top) {
  const uvec2 own = own_candidates();
  uvec2 sum = uvec2(0u);
  for (uint i = own.x; i < own.y; ++i) {
    const float score = candidate_score(i);
    if (key_of(score) >= least) sum = added(sum, weight_parts(score, top));
  }
  return sum;
}

// Samples a candidate with key >= `least` in proportion to its weight, by inverting the cumulative sum in token order.
uint drawn(uint least, float top, uint bits) {
  const uvec2 own = own_weight(least, top);
  scan(own);
  const uvec2 sum = scanned[kInvocations - 1u];
  // target = sum * bits / 2^32, in 64 bits.
  const uint sum_low = sum.x << kLow | sum.y, sum_high = sum.x >> (32u - kLow);
  uint a_high, a_low, b_high, b_low, carry;
  umulExtended(sum_low, bits, a_high, a_low);
  umulExtended(sum_high, bits, b_high, b_low);
  const uint target_low = uaddCarry(b_low, a_high, carry), target_high = b_high + carry;
  const uvec2 target = uvec2(target_high << (32u - kLow) | target_low >> kLow, target_low & kLowMask);
  if (lane == 0u) found[0] = kNone;
  barrier();
  const uvec2 before = lane == 0u ? uvec2(0u) : scanned[lane - 1u];
  if (!is_less(target, before) && is_less(target, scanned[lane])) {
    const uvec2 those = own_candidates();
    uvec2 left = less_by(target, before);
    for (uint i = those.x; i < those.y; ++i) {
      const float score = candidate_score(i);
      if (key_of(score) < least) continue;
      const uvec2 weight = weight_parts(score, top);
      if (is_less(left, weight)) {
        found[0] = candidate_word(i);
        break;
      }
      left = less_by(left, weight);
    }
  }
  barrier();
  return found[0];
}

void main() {
  image = gl_WorkGroupID.x;
  lane = gl_LocalInvocationID.x;
  setting = settings[image];
  const uvec2 top = likeliest_of_image();
  uint word = top.y;
  const bool is_there = is_number(top.x);
  if (is_there && setting.temperature > 0.0) {
    const float score = float_of(top.x);
    uint least = 0x00800000u;  // excludes minus infinity
    read_candidates();
    keep_candidates();
    if (setting.top_k > 0u && setting.top_k < words) least = threshold(float(setting.top_k), least, false, score);
    if (setting.top_p < 1.0) {
      scan(own_weight(least, score));
      const float all = number_of(scanned[kInvocations - 1u]);
      least = threshold(all * setting.top_p, least, true, score);
    }
    const uint one = drawn(least, score, random_bits(uvec2(place_of_token(), setting.seed.y), setting.seed.x));
    if (one != kNone) word = one;
  }
  if (lane == 0u) take(word, is_there);
}

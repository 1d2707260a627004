// The next token of each image, by one workgroup: the most likely one, or one by chance among those that top-k and top-p leave. All sums
// are of whole numbers, and each random number is a function of the seed and of the token's place: neither the batch nor the order in
// which invocations run changes a token.
const uint kBins = 256u;
const uint kWhole = 27u, kLow = 14u;  // bits of the weight of the likeliest token, and of the lower part that sums are kept in
layout(local_size_x = 256) in;
layout(binding = 0) readonly buffer Logits { sfp logits[]; };      // [images, words]
layout(binding = 1) buffer Seen { uint seen[]; };                  // [images, (words + 31) / 32]: bits of the tokens that were there
layout(binding = 3) buffer Past { uvec2 past[]; };                 // int64 [images]: tokens before the one that is made
layout(binding = 4) writeonly buffer Words { WORD chosen[]; };     // [images]: the model's next input
layout(binding = 5) writeonly buffer Ring { uint ring[]; };        // [slots, images]: what the host reads
layout(binding = 6) readonly buffer Best { uvec2 best[]; };         // [images, stretches]: what likeliest.comp has found
layout(push_constant) uniform Parameters { uint words, images, stretches, slots, advance; };
#include "scores.glsl"

shared uint highs[kBins], lows[kBins];
shared uint found[4];

// Ten rounds of mixing by multiplication (Philox 2x32 of Salmon and others, "Parallel random numbers: as easy as 1, 2, 3", 2011).
uint random_bits(uvec2 counter, uint key) {
  for (uint i = 0u; i < 10u; ++i) {
    uint high, low;
    umulExtended(0xd256d193u, counter.x, high, low);
    counter = uvec2(high ^ key ^ counter.y, low);
    key += 0x9e3779b9u;
  }
  return counter.x;
}

// The key of the likeliest word, and the first word that has it.
uvec2 likeliest() {
  uvec2 own = uvec2(0u, kNone);
  for (uint i = lane; i < stretches; i += kInvocations) own = likelier(own, best[image * stretches + i]);
  return likeliest_of_all(own);
}

// What a word weighs beside the likeliest, which weighs 2^27.
uint weight_of(float score, float top) { return uint(exp((score - top) / setting.temperature) * float(1u << kWhole)); }

float number_of(uint high, uint low) { return float(high) * float(1u << kLow) + float(low); }

// The largest key that leaves `wanted` of the words, or where by_weight of their weights, among those whose key is at least `least`.
uint threshold(float wanted, uint least, bool by_weight, float top) {
  uint prefix = 0u;
  float above = 0.0;
  for (uint byte = 0u; byte < 4u; ++byte) {
    const uint shift = 24u - 8u * byte;
    highs[lane] = 0u;
    lows[lane] = 0u;
    barrier();
    for (uint word = lane; word < words; word += kInvocations) {
      const float score = score_of(word);
      const uint key = key_of(score);
      if (key < least || (byte > 0u && (key >> (shift + 8u)) != prefix)) continue;
      const uint weight = by_weight ? weight_of(score, top) : 1u, bin = key >> shift & 0xffu;
      atomicAdd(highs[bin], weight >> kLow);
      atomicAdd(lows[bin], weight & ((1u << kLow) - 1u));
    }
    barrier();
    if (lane == 0u) {
      uint bin = kBins - 1u;
      float sum = above;
      for (; bin > 0u; --bin) {
        const float more = number_of(highs[bin], lows[bin]);
        if (sum + more >= wanted) break;
        sum += more;
      }
      found[0] = bin;
      found[1] = floatBitsToUint(sum);
    }
    barrier();
    prefix = prefix << 8 | found[0];
    above = uintBitsToFloat(found[1]);
    barrier();
  }
  return max(prefix, least);
}

// The sum of an invocation's weights of words whose key is at least `least`: 14 bits below, the rest above.
uvec2 own_weight(uint least, float top) {
  uint high = 0u, low = 0u;
  for (uint word = lane; word < words; word += kInvocations) {
    const float score = score_of(word);
    if (key_of(score) < least) continue;
    const uint weight = weight_of(score, top);
    high += weight >> kLow;
    low += weight & ((1u << kLow) - 1u);
  }
  return uvec2(high + (low >> kLow), low & ((1u << kLow) - 1u));
}

// A word by chance among those whose key is at least `least`, as likely as its weight.
uint drawn(uint least, float top, uint bits) {
  const uvec2 own = own_weight(least, top);
  highs[lane] = own.x;
  lows[lane] = own.y;
  barrier();
  if (lane == 0u) {
    uint high = 0u, low = 0u;
    for (uint i = 0u; i < kInvocations; ++i) {
      low += lows[i];
      high += highs[i] + (low >> kLow);
      low &= (1u << kLow) - 1u;
    }
    // bits / 2^32 of the sum, in 64 bits.
    const uint sum_low = high << kLow | low, sum_high = high >> (32u - kLow);
    uint a_high, a_low, b_high, b_low, carry;
    umulExtended(sum_low, bits, a_high, a_low);
    umulExtended(sum_high, bits, b_high, b_low);
    const uint target_low = uaddCarry(b_low, a_high, carry), target_high = b_high + carry;
    uint left_high = target_high << (32u - kLow) | target_low >> kLow, left_low = target_low & ((1u << kLow) - 1u);
    uint i = 0u;
    for (; i + 1u < kInvocations; ++i) {
      if (left_high < highs[i] || (left_high == highs[i] && left_low < lows[i])) break;
      left_high -= highs[i] + (left_low < lows[i] ? 1u : 0u);
      left_low = left_low - lows[i] & ((1u << kLow) - 1u);
    }
    found[0] = i;
    found[1] = left_high;
    found[2] = left_low;
    found[3] = kNone;
  }
  barrier();
  if (lane == found[0]) {
    uint left_high = found[1], left_low = found[2], chosen = kNone;
    for (uint word = lane; word < words; word += kInvocations) {
      const float score = score_of(word);
      if (key_of(score) < least) continue;
      const uint weight = weight_of(score, top), high = weight >> kLow, low = weight & ((1u << kLow) - 1u);
      if (weight == 0u) continue;
      chosen = word;
      if (left_high < high || (left_high == high && left_low < low)) break;
      left_high -= high + (left_low < low ? 1u : 0u);
      left_low = left_low - low & ((1u << kLow) - 1u);
    }
    found[3] = chosen;
  }
  barrier();
  return found[3];
}

void main() {
  image = gl_WorkGroupID.x;
  lane = gl_LocalInvocationID.x;
  setting = settings[image];
  const uvec2 top = likeliest();
  uint word = top.y;
  // With neither a number nor infinity at the top there is nothing to choose from: the host is told so.
  const bool is_number = top.x > 0x007fffffu && top.x < 0xff800000u;
  const uint place = past[image].x + advance;
  if (is_number && setting.temperature > 0.0) {
    const float score = uintBitsToFloat((top.x >> 31) != 0u ? top.x & 0x7fffffffu : ~top.x);
    uint least = 0x00800000u;  // minus infinity weighs nothing
    if (setting.top_k > 0u && setting.top_k < words) least = threshold(float(setting.top_k), least, false, score);
    if (setting.top_p < 1.0) {
      const uvec2 own = own_weight(least, score);
      barrier();
      highs[lane] = own.x;
      lows[lane] = own.y;
      barrier();
      if (lane == 0u) {
        uint high = 0u, low = 0u;
        for (uint i = 0u; i < kInvocations; ++i) {
          high += highs[i];
          low += lows[i];
        }
        found[0] = floatBitsToUint(number_of(high, low));
      }
      barrier();
      const float all = uintBitsToFloat(found[0]);
      barrier();
      least = threshold(all * setting.top_p, least, true, score);
    }
    barrier();
    const uint one = drawn(least, score, random_bits(uvec2(place, setting.seed.y), setting.seed.x));
    if (one != kNone) word = one;
  }
  if (lane != 0u) return;
  ring[(place - setting.first) % slots * images + image] = is_number ? word : kNone;
  word = is_number ? word : 0u;
  chosen[image] = WORD_OF(word);
  atomicOr(seen[image * ((words + 31u) / 32u) + word / 32u], 1u << (word % 32u));
  past[image] = uvec2(place, 0u);
}

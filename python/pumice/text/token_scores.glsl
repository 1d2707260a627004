// Shared by the sampling kernels: sampling parameters and token scores. The including file declares `logits` [batch, vocab_size],
// `seen` [batch, (vocab_size + 31) / 32], `words` (vocab_size) and `stretches` (vocabulary chunks per sequence).
const uint kInvocations = 256u;
const uint kNone = 0xffffffffu;
const uint kWhole = 27u, kLow = 14u;  // log2 of the top token's weight; low bits of a split sum
const uint kLowMask = (1u << kLow) - 1u;

struct Setting {
  float temperature;  // 0 selects the argmax
  float top_p;        // total probability of the tokens kept
  float penalty;      // divides positive scores of earlier tokens, multiplies negative ones
  uint top_k;         // number of tokens kept; 0 keeps all
  uvec2 seed;
  uint first;         // prompt length
  uint unused;
};

layout(binding = 2) readonly buffer Settings { Setting settings[]; };

Setting setting;
uint image, lane;

// Maps floats to uints of the same order; NaN is the smallest.
uint key_of(float x) {
  const uint bits = floatBitsToUint(x);
  if (isnan(x)) return 0u;
  return (bits >> 31) != 0u ? ~bits : bits | 0x80000000u;
}

float float_of(uint key) { return uintBitsToFloat((key >> 31) != 0u ? key & 0x7fffffffu : ~key); }

// Returns the number of tokens per chunk; the last chunk may have fewer.
uint stretch_words() { return (words + stretches - 1u) / stretches; }

// Returns the fixed-point softmax weight relative to the top token, whose weight is 2^27.
uint weight_of(float score, float top) { return uint(exp((score - top) / setting.temperature) * float(1u << kWhole)); }

float score_of(uint word) {
  float score = float(buffer_ld1(logits, image * words + word));
  if (setting.penalty != 1.0 && (seen[image * ((words + 31u) / 32u) + word / 32u] >> (word % 32u) & 1u) != 0u)
    score = score > 0.0 ? score / setting.penalty : score * setting.penalty;
  return score;
}

// Returns the (key, token) with the larger key; ties take the lower token.
uvec2 likelier(uvec2 a, uvec2 b) { return b.x > a.x || (b.x == a.x && b.y < a.y) ? b : a; }

shared uvec2 best_of[kInvocations];

// Reduces likelier() over the workgroup.
uvec2 likeliest_of_all(uvec2 own) {
  best_of[lane] = own;
  for (uint step = kInvocations / 2u; step > 0u; step /= 2u) {
    barrier();
    if (lane < step) best_of[lane] = likelier(best_of[lane], best_of[lane + step]);
  }
  barrier();
  return best_of[0];
}

#if READS_BEST
// Reduces the chunk maxima of logits_argmax.comp to (key, token).
uvec2 likeliest_of_image() {
  uvec2 own = uvec2(0u, kNone);
  for (uint i = lane; i < stretches; i += kInvocations) own = likelier(own, best[image * stretches + i]);
  return likeliest_of_all(own);
}
#endif

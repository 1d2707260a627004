// What the kernels of the choice share: how an image's next token is chosen, and the scores of its words. The file that includes this one
// declares `logits` [images, words], `seen` [images, (words + 31) / 32], `words` and `stretches`.
const uint kInvocations = 256u;
const uint kNone = 0xffffffffu;
const uint kWhole = 27u, kLow = 14u;  // bits of the weight of the likeliest token, and of the lower part that sums are kept in
const uint kLowMask = (1u << kLow) - 1u;

struct Setting {
  float temperature;  // 0: the most likely token
  float top_p;        // the share of the weights that is kept
  float penalty;      // by which the scores of tokens that were there are divided, or multiplied where they are negative
  uint top_k;         // tokens that are kept; 0: all
  uvec2 seed;
  uint first;         // the number of tokens before those that are made
  uint unused;
};

layout(binding = 2) readonly buffer Settings { Setting settings[]; };

Setting setting;
uint image, lane;

// A number that orders floats as they are ordered; NaN comes first.
uint key_of(float x) {
  const uint bits = floatBitsToUint(x);
  if (isnan(x)) return 0u;
  return (bits >> 31) != 0u ? ~bits : bits | 0x80000000u;
}

float float_of(uint key) { return uintBitsToFloat((key >> 31) != 0u ? key & 0x7fffffffu : ~key); }

// Words of a stretch; the last one may have fewer.
uint stretch_words() { return (words + stretches - 1u) / stretches; }

// What a word weighs beside the likeliest, which weighs 2^27.
uint weight_of(float score, float top) { return uint(exp((score - top) / setting.temperature) * float(1u << kWhole)); }

float score_of(uint word) {
  float score = float(buffer_ld1(logits, image * words + word));
  if (setting.penalty != 1.0 && (seen[image * ((words + 31u) / 32u) + word / 32u] >> (word % 32u) & 1u) != 0u)
    score = score > 0.0 ? score / setting.penalty : score * setting.penalty;
  return score;
}

// The first of the words with the largest key: (key, word) of either of two.
uvec2 likelier(uvec2 a, uvec2 b) { return b.x > a.x || (b.x == a.x && b.y < a.y) ? b : a; }

shared uvec2 best_of[kInvocations];

// The likelier of all invocations' words.
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
// The key of the likeliest word, and the first word that has it, of what likeliest.comp has found.
uvec2 likeliest_of_image() {
  uvec2 own = uvec2(0u, kNone);
  for (uint i = lane; i < stretches; i += kInvocations) own = likelier(own, best[image * stretches + i]);
  return likeliest_of_all(own);
}
#endif

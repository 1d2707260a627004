// Common code of the sampling kernels: sampling parameters, token scores and argmax reductions. The including file declares the buffers
// `logits` [batch, vocab_size] and `token_bitmask` [batch, (vocab_size + 31) / 32], and the push constants `vocab_size` and `num_chunks`
// (vocabulary chunks per sequence).
const uint kInvocations = 256u;
const uint kNoToken = 0xffffffffu;
const uint kTopWeightLog2 = 27u, kLow = 14u;  // log2 of the weight of the top token; number of low bits of a split sum
const uint kLowMask = (1u << kLow) - 1u;

struct SamplingParams {
  float temperature;  // 0 selects the argmax
  float top_p;        // minimum total probability of the tokens to keep
  float penalty;      // repetition penalty: divides positive scores of earlier tokens, multiplies negative ones
  uint top_k;         // number of tokens to keep; 0 keeps all
  uvec2 seed;
  uint prompt_length;
  uint unused;
};

layout(binding = 2) readonly buffer Settings { SamplingParams sampling_params[]; };

SamplingParams params;
uint sequence, lane;

// Maps a float to a sort key: keys of larger floats are larger, NaN has the smallest key.
uint key_of(float x) {
  const uint bits = floatBitsToUint(x);
  if (isnan(x)) return 0u;
  return (bits >> 31) != 0u ? ~bits : bits | 0x80000000u;
}

float float_of(uint key) { return uintBitsToFloat((key >> 31) != 0u ? key & 0x7fffffffu : ~key); }

// Returns the number of tokens per vocabulary chunk; the last chunk may have fewer.
uint chunk_size() { return (vocab_size + num_chunks - 1u) / num_chunks; }

// Returns the softmax weight of a score as an integer; the weight of the top score is 2^27.
uint weight_of(float score, float top) { return uint(exp((score - top) / params.temperature) * float(1u << kTopWeightLog2)); }

float score_token(uint token) {
  float score = float(buffer_ld1(logits, sequence * vocab_size + token));
  if (params.penalty != 1.0 && (token_bitmask[sequence * ((vocab_size + 31u) / 32u) + token / 32u] >> (token % 32u) & 1u) != 0u)
    score = score > 0.0 ? score / params.penalty : score * params.penalty;
  return score;
}

// Returns the (key, token) pair with the larger key; ties take the smaller token.
uvec2 better_token(uvec2 a, uvec2 b) { return b.x > a.x || (b.x == a.x && b.y < a.y) ? b : a; }

shared uvec2 best_of[kInvocations];

// Returns the best (key, token) pair of the workgroup.
uvec2 reduce_argmax(uvec2 thread_best) {
  best_of[lane] = thread_best;
  for (uint step = kInvocations / 2u; step > 0u; step /= 2u) {
    barrier();
    if (lane < step) best_of[lane] = better_token(best_of[lane], best_of[lane + step]);
  }
  barrier();
  return best_of[0];
}

#if READS_BEST
// Returns the best (key, token) pair of the sequence from the results of logits_argmax.comp.
uvec2 reduce_chunk_argmax() {
  uvec2 thread_best = uvec2(0u, kNoToken);
  for (uint i = lane; i < num_chunks; i += kInvocations) thread_best = better_token(thread_best, best[sequence * num_chunks + i]);
  return reduce_argmax(thread_best);
}
#endif

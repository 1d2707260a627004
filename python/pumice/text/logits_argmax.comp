// best[b, c] = argmax of the scores (logits after the repetition penalty) of sequence b in vocabulary chunk c, as (key, token).
// Workgroup (c, b): one per chunk, because a single workgroup per sequence could not saturate memory bandwidth. Each invocation has
// kLoadsInFlight loads in flight. STORES_TOKEN (greedy decoding): the workgroup of a sequence that finishes last reduces the chunks and
// stores the next token, which saves a second dispatch.
#extension GL_EXT_control_flow_attributes : require
const uint kLoadsInFlight = 8u;

layout(local_size_x = 256) in;
layout(binding = 0) readonly buffer Logits { sfp logits[]; };  // [batch, vocab_size]
#if STORES_TOKEN
layout(binding = 6) coherent buffer Best { uvec2 best[]; };                      // [batch, chunks]: (key, first token with that key)
layout(binding = 7) coherent buffer FinishedGroups { uint finished_groups[]; };  // [batch]: finished workgroups; zero between dispatches
layout(push_constant) uniform Parameters { uint vocab_size, batch, num_chunks, slots, advance; };
#define READS_BEST 1
#include "store_token.glsl"

shared bool is_last;

// In the workgroup of the sequence that finishes last, reduces the chunk maxima and stores the token.
void store_token_in_last_group() {
  if (lane == 0u) {
    memoryBarrierBuffer();
    is_last = atomicAdd(finished_groups[sequence], 1u) + 1u == num_chunks;
    if (is_last) atomicExchange(finished_groups[sequence], 0u);
  }
  barrier();  // broadcasts is_last
  if (!is_last) return;
  memoryBarrierBuffer();
  const uvec2 top = reduce_chunk_argmax();
  if (lane == 0u) store_token(top.y, is_finite_key(top.x));
}
#else
layout(binding = 1) readonly buffer TokenBitmask { uint token_bitmask[]; };  // [batch, (vocab_size + 31) / 32]: set of earlier tokens
layout(binding = 6) writeonly buffer Best { uvec2 best[]; };                 // [batch, chunks]: (key, first token with that key)
layout(push_constant) uniform Parameters { uint vocab_size, batch, num_chunks; };
#include "token_scores.glsl"
#endif

void main() {
  sequence = gl_WorkGroupID.y;
  lane = gl_LocalInvocationID.x;
  params = sampling_params[sequence];
  const uint size = chunk_size(), begin = gl_WorkGroupID.x * size, end = min(begin + size, vocab_size);
  uvec2 best_token = uvec2(0u, kNoToken);
  for (uint base = begin; base < end; base += kInvocations * kLoadsInFlight) {
    float scores[kLoadsInFlight];
    [[unroll]] for (uint k = 0u; k < kLoadsInFlight; ++k) scores[k] = score_token(min(base + k * kInvocations + lane, end - 1u));
    [[unroll]] for (uint k = 0u; k < kLoadsInFlight; ++k) best_token = better_token(best_token, uvec2(key_of(scores[k]), min(base + k * kInvocations + lane, end - 1u)));
  }
  best_token = reduce_argmax(best_token);
  if (lane == 0u) best[sequence * num_chunks + gl_WorkGroupID.x] = best_token;
#if STORES_TOKEN
  store_token_in_last_group();
#endif
}

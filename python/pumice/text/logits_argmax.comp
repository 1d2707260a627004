// Argmax of the logits of each vocabulary chunk. Several workgroups per sequence: one could not saturate memory bandwidth for a large
// vocabulary. Each invocation keeps kAhead loads in flight. TAKES (greedy decoding): the last workgroup of a sequence to finish reduces the
// chunks and stores the next token, so no second dispatch is needed.
#extension GL_EXT_control_flow_attributes : require
const uint kAhead = 8u;

layout(local_size_x = 256) in;
layout(binding = 0) readonly buffer Logits { sfp logits[]; };  // [batch, vocab_size]
#if TAKES
layout(binding = 6) coherent buffer Best { uvec2 best[]; };        // [batch, chunks]: (key, first token with that key)
layout(binding = 7) coherent buffer Arrived { uint arrived[]; };  // [batch]: count of finished workgroups; zero between dispatches
layout(push_constant) uniform Parameters { uint words, images, stretches, slots, advance; };
#define READS_BEST 1
#include "store_token.glsl"

shared bool is_last;

// In the last workgroup to finish: reduces the chunk maxima and stores the token.
void take_last() {
  if (lane == 0u) {
    memoryBarrierBuffer();
    is_last = atomicAdd(arrived[image], 1u) + 1u == stretches;
    if (is_last) atomicExchange(arrived[image], 0u);
  }
  barrier();  // broadcasts is_last
  if (!is_last) return;
  memoryBarrierBuffer();
  const uvec2 top = likeliest_of_image();
  if (lane == 0u) take(top.y, is_number(top.x));
}
#else
layout(binding = 1) readonly buffer Seen { uint seen[]; };    // [batch, (vocab_size + 31) / 32]: bitmask of earlier tokens
layout(binding = 6) writeonly buffer Best { uvec2 best[]; };  // [batch, chunks]: (key, first token with that key)
layout(push_constant) uniform Parameters { uint words, images, stretches; };
#include "token_scores.glsl"
#endif

void main() {
  image = gl_WorkGroupID.y;
  lane = gl_LocalInvocationID.x;
  setting = settings[image];
  const uint size = stretch_words(), begin = gl_WorkGroupID.x * size, end = min(begin + size, words);
  uvec2 own = uvec2(0u, kNone);
  for (uint base = begin; base < end; base += kInvocations * kAhead) {
    float scores[kAhead];
    [[unroll]] for (uint k = 0u; k < kAhead; ++k) scores[k] = score_of(min(base + k * kInvocations + lane, end - 1u));
    [[unroll]] for (uint k = 0u; k < kAhead; ++k) own = likelier(own, uvec2(key_of(scores[k]), min(base + k * kInvocations + lane, end - 1u)));
  }
  own = likeliest_of_all(own);
  if (lane == 0u) best[image * stretches + gl_WorkGroupID.x] = own;
#if TAKES
  take_last();
#endif
}

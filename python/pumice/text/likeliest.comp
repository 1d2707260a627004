// The likeliest word of each stretch of each image's words: one workgroup could not read the words of a large model as fast as memory gives
// them. kAhead reads of an invocation are on their way at once. TAKES: the likeliest word of all is the next token, which the workgroup that
// is the last of its image's to end takes, so that nothing else has to be dispatched.
#extension GL_EXT_control_flow_attributes : require
const uint kAhead = 8u;

layout(local_size_x = 256) in;
layout(binding = 0) readonly buffer Logits { sfp logits[]; };  // [images, words]
#if TAKES
layout(binding = 6) coherent buffer Best { uvec2 best[]; };        // [images, stretches]: a key, and the first word that has it
layout(binding = 7) coherent buffer Arrived { uint arrived[]; };  // [images]: workgroups that have ended; zero between two dispatches
layout(push_constant) uniform Parameters { uint words, images, stretches, slots, advance; };
#define READS_BEST 1
#include "taking.glsl"

shared bool is_last;

// Takes the likeliest of what all workgroups have found, in the last of them.
void take_last() {
  if (lane == 0u) {
    memoryBarrierBuffer();
    is_last = atomicAdd(arrived[image], 1u) + 1u == stretches;
    if (is_last) atomicExchange(arrived[image], 0u);
  }
  barrier();  // all know whether it was the last
  if (!is_last) return;
  memoryBarrierBuffer();
  const uvec2 top = likeliest_of_image();
  if (lane == 0u) take(top.y, is_number(top.x));
}
#else
layout(binding = 1) readonly buffer Seen { uint seen[]; };    // [images, (words + 31) / 32]: bits of the tokens that were there
layout(binding = 6) writeonly buffer Best { uvec2 best[]; };  // [images, stretches]: a key, and the first word that has it
layout(push_constant) uniform Parameters { uint words, images, stretches; };
#include "scores.glsl"
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

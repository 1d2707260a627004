// Collects the sampling candidates of each vocabulary chunk, in token order: tokens with a nonzero weight and, if k is at most the number
// of chunks, at least the k-th largest chunk maximum. At least k tokens reach that bound, so no top-k token is lost.
// One workgroup per chunk: a single workgroup could not saturate memory bandwidth.
#define READS_BEST 1
layout(local_size_x = 256) in;
layout(binding = 0) readonly buffer Logits { sfp logits[]; };           // [batch, vocab_size]
layout(binding = 1) readonly buffer Seen { uint seen[]; };              // [batch, (vocab_size + 31) / 32]: bitmask of earlier tokens
layout(binding = 6) readonly buffer Best { uvec2 best[]; };             // [batch, chunks]: results of logits_argmax.comp
layout(binding = 7) writeonly buffer Candidates { uint candidates[]; };  // [batch, chunks, tokens per chunk]
layout(binding = 8) writeonly buffer Counts { uint counts[]; };          // [batch, chunks]
layout(push_constant) uniform Parameters { uint words, images, stretches; };
#include "token_scores.glsl"

shared uint ends[kInvocations];
shared uint least_key;

// Returns the k-th largest chunk maximum; 0 if top-k is off or exceeds the number of chunks.
uint least_of_stretches() {
  if (setting.top_k == 0u || setting.top_k > stretches) return 0u;
  for (uint i = lane; i < stretches; i += kInvocations) {
    const uint key = best[image * stretches + i].x;
    uint before = 0u;
    for (uint j = 0u; j < stretches; ++j) {
      const uint other = best[image * stretches + j].x;
      if (other > key || (other == key && j < i)) ++before;
    }
    if (before + 1u == setting.top_k) least_key = key;
  }
  barrier();
  return least_key;
}

void main() {
  image = gl_WorkGroupID.y;
  lane = gl_LocalInvocationID.x;
  setting = settings[image];
  const uint size = stretch_words(), begin = min(gl_WorkGroupID.x * size, words), end = min(begin + size, words);
  const uint stretch = image * stretches + gl_WorkGroupID.x;
  const uvec2 top = likeliest_of_image();
  const bool is_number = top.x > 0x007fffffu && top.x < 0xff800000u;
  if (!is_number || setting.temperature <= 0.0) {
    if (lane == 0u) counts[stretch] = 0u;
    return;
  }
  const uint least = max(least_of_stretches(), 0x00800000u);  // excludes minus infinity
  const float score = float_of(top.x);
  // Each invocation handles consecutive tokens.
  const uint each = (size + kInvocations - 1u) / kInvocations, first = min(begin + lane * each, end), last = min(first + each, end);
  uint own = 0u;
  for (uint word = first; word < last; ++word) {
    const float one = score_of(word);
    if (key_of(one) >= least && weight_of(one, score) > 0u) ++own;
  }
  ends[lane] = own;
  for (uint step = 1u; step < kInvocations; step *= 2u) {
    barrier();
    const uint more = lane >= step ? ends[lane - step] : 0u;
    barrier();
    ends[lane] += more;
  }
  barrier();
  uint at = stretch * size + ends[lane] - own;
  for (uint word = first; word < last; ++word) {
    const float one = score_of(word);
    if (key_of(one) >= least && weight_of(one, score) > 0u) candidates[at++] = word;
  }
  if (lane == 0u) counts[stretch] = ends[kInvocations - 1u];
}

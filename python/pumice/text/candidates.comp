// The words of each stretch that may be chosen by chance, in their order: those that weigh something beside the likeliest and, where top-k
// leaves no more words than there are stretches, that are at least as likely as the k-th of the stretches' likeliest words. There are k
// such words already, so that none of the k likeliest of all is lost. One workgroup could not read all words as fast as memory gives them.
#define READS_BEST 1
layout(local_size_x = 256) in;
layout(binding = 0) readonly buffer Logits { sfp logits[]; };           // [images, words]
layout(binding = 1) readonly buffer Seen { uint seen[]; };              // [images, (words + 31) / 32]: bits of the tokens that were there
layout(binding = 6) readonly buffer Best { uvec2 best[]; };             // [images, stretches]: what likeliest.comp has found
layout(binding = 7) writeonly buffer Candidates { uint candidates[]; };  // [images, stretches, words of one]
layout(binding = 8) writeonly buffer Counts { uint counts[]; };          // [images, stretches]
layout(push_constant) uniform Parameters { uint words, images, stretches; };
#include "scores.glsl"

shared uint ends[kInvocations];
shared uint least_key;

// The k-th largest key of the stretches' likeliest words; 0 where top-k asks for none or for more.
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
  const uint least = max(least_of_stretches(), 0x00800000u);  // minus infinity weighs nothing
  const float score = float_of(top.x);
  // Each invocation has some words that follow each other.
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

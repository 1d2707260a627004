// Collects the candidates for random sampling of each vocabulary chunk, in token order: tokens with a nonzero softmax weight. If top_k is
// at most the number of chunks, scores below the k-th largest chunk maximum are dropped: at least k tokens reach it, so no top-k token is
// lost.
// One workgroup per chunk, because a single workgroup per sequence could not saturate memory bandwidth.
#define READS_BEST 1
layout(local_size_x = 256) in;
layout(binding = 0) readonly buffer Logits { sfp logits[]; };                // [batch, vocab_size]
layout(binding = 1) readonly buffer TokenBitmask { uint token_bitmask[]; };  // [batch, (vocab_size + 31) / 32]: set of earlier tokens
layout(binding = 6) readonly buffer Best { uvec2 best[]; };                  // [batch, chunks]: results of logits_argmax.comp
layout(binding = 7) writeonly buffer Candidates { uint candidates[]; };      // [batch, chunks, 1 + tokens per chunk]: their number, token ids
layout(push_constant) uniform Parameters { uint vocab_size, batch, num_chunks; };
#include "token_scores.glsl"

shared uint ends[kInvocations];
shared uint kth_key;

// Returns the k-th largest chunk maximum (a key) for k = top_k; 0 if top_k is 0 or exceeds the number of chunks.
uint find_kth_chunk_max() {
  if (params.top_k == 0u || params.top_k > num_chunks) return 0u;
  for (uint i = lane; i < num_chunks; i += kInvocations) {
    const uint key = best[sequence * num_chunks + i].x;
    uint before = 0u;
    for (uint j = 0u; j < num_chunks; ++j) {
      const uint other = best[sequence * num_chunks + j].x;
      if (other > key || (other == key && j < i)) ++before;
    }
    if (before + 1u == params.top_k) kth_key = key;
  }
  barrier();
  return kth_key;
}

void main() {
  sequence = gl_WorkGroupID.y;
  lane = gl_LocalInvocationID.x;
  params = sampling_params[sequence];
  const uint size = chunk_size(), begin = min(gl_WorkGroupID.x * size, vocab_size), end = min(begin + size, vocab_size);
  const uint chunk = sequence * num_chunks + gl_WorkGroupID.x;
  const uvec2 top = reduce_chunk_argmax();
  const bool is_valid_top = top.x > 0x007fffffu && top.x < 0xff800000u;
  if (!is_valid_top || params.temperature <= 0.0) {
    if (lane == 0u) candidates[chunk * (size + 1u)] = 0u;
    return;
  }
  const uint min_key = max(find_kth_chunk_max(), 0x00800000u);  // at least the smallest key of a finite float
  const float score = float_of(top.x);
  // Each invocation processes consecutive tokens, so that the candidates are in token order.
  const uint tokens_per_thread = (size + kInvocations - 1u) / kInvocations, first = min(begin + lane * tokens_per_thread, end), last = min(first + tokens_per_thread, end);
  uint num_kept = 0u;
  for (uint token = first; token < last; ++token) {
    const float token_score = score_token(token);
    if (key_of(token_score) >= min_key && weight_of(token_score, score) > 0u) ++num_kept;
  }
  ends[lane] = num_kept;
  for (uint step = 1u; step < kInvocations; step *= 2u) {
    barrier();
    const uint preceding = lane >= step ? ends[lane - step] : 0u;
    barrier();
    ends[lane] += preceding;
  }
  barrier();
  uint out_index = chunk * (size + 1u) + 1u + ends[lane] - num_kept;
  for (uint token = first; token < last; ++token) {
    const float token_score = score_token(token);
    if (key_of(token_score) >= min_key && weight_of(token_score, score) > 0u) candidates[out_index++] = token;
  }
  if (lane == 0u) candidates[chunk * (size + 1u)] = ends[kInvocations - 1u];
}

// store_token() stores a sampled token as the model's next input and in the ring buffer for the host. The including file declares the push
// constants `vocab_size`, `batch`, `slots` and `advance`. Macros: INPUT_ID is the type of input_ids, TO_INPUT_ID converts a token to it.
layout(binding = 1) buffer TokenBitmask { uint token_bitmask[]; };             // [batch, (vocab_size + 31) / 32]: set of earlier tokens
layout(binding = 3) buffer Past { uvec2 past[]; };                             // int64 [batch]: cache lengths
layout(binding = 4) writeonly buffer InputIds { INPUT_ID next_input_ids[]; };  // [batch]: input_ids of the next step
layout(binding = 5) writeonly buffer Ring { uint ring[]; };                    // [slots, batch]: ring buffer that the host reads
#include "token_scores.glsl"

// Returns whether a sort key (see key_of) belongs to a finite score.
bool is_finite_key(uint key) { return key > 0x007fffffu && key < 0xff800000u; }

// Returns the position of the sampled token in its sequence.
uint token_position() { return past[sequence].x + advance; }

// Stores `token` as the next token; if not is_valid, kNoToken for the host and token 0 for the model. Called by one invocation.
void store_token(uint token, bool is_valid) {
  const uint position = token_position();
  ring[(position - params.prompt_length) % slots * batch + sequence] = is_valid ? token : kNoToken;
  token = is_valid ? token : 0u;
  next_input_ids[sequence] = TO_INPUT_ID(token);
  atomicOr(token_bitmask[sequence * ((vocab_size + 31u) / 32u) + token / 32u], 1u << (token % 32u));
  past[sequence] = uvec2(position, 0u);
}

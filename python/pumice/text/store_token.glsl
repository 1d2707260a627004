// Stores a sampled token as the model's next input and for the host. The including file declares `vocab_size`, `batch`, `slots` and
// `advance`, and the macros INPUT_ID, the type of input_ids, and TO_INPUT_ID, which converts a token to that type.
layout(binding = 1) buffer TokenBitmask { uint token_bitmask[]; };               // [batch, (vocab_size + 31) / 32]: bitmask of earlier tokens
layout(binding = 3) buffer Past { uvec2 past[]; };              // int64 [batch]: cache lengths
layout(binding = 4) writeonly buffer InputIds { INPUT_ID next_input_ids[]; };  // [batch]: next input_ids
layout(binding = 5) writeonly buffer Ring { uint ring[]; };     // [slots, batch]: tokens read by the host
#include "token_scores.glsl"

// Returns whether the key belongs to a finite score; otherwise no token can be sampled, and the host gets kNoToken.
bool is_finite_key(uint key) { return key > 0x007fffffu && key < 0xff800000u; }

// Returns the position of the sampled token in its sequence.
uint token_position() { return past[sequence].x + advance; }

// Stores `token` as the next token. Called by one invocation.
void store_token(uint token, bool is_valid) {
  const uint position = token_position();
  ring[(position - params.prompt_length) % slots * batch + sequence] = is_valid ? token : kNoToken;
  token = is_valid ? token : 0u;
  next_input_ids[sequence] = TO_INPUT_ID(token);
  atomicOr(token_bitmask[sequence * ((vocab_size + 31u) / 32u) + token / 32u], 1u << (token % 32u));
  past[sequence] = uvec2(position, 0u);
}

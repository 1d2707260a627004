// Stores a sampled token as the model's next input and for the host. The including file declares `words`, `images`, `slots` and
// `advance`, and the macros WORD, the type of input_ids, and WORD_OF, which converts a token to that type.
layout(binding = 1) buffer Seen { uint seen[]; };               // [batch, (vocab_size + 31) / 32]: bitmask of earlier tokens
layout(binding = 3) buffer Past { uvec2 past[]; };              // int64 [batch]: cache lengths
layout(binding = 4) writeonly buffer Words { WORD chosen[]; };  // [batch]: next input_ids
layout(binding = 5) writeonly buffer Ring { uint ring[]; };     // [slots, batch]: tokens read by the host
#include "token_scores.glsl"

// Returns whether the key belongs to a finite score; otherwise no token can be sampled, and the host gets kNone.
bool is_number(uint key) { return key > 0x007fffffu && key < 0xff800000u; }

// Returns the position of the sampled token in its sequence.
uint place_of_token() { return past[image].x + advance; }

// Stores `word` as the next token. Called by one invocation.
void take(uint word, bool is_there) {
  const uint place = place_of_token();
  ring[(place - setting.first) % slots * images + image] = is_there ? word : kNone;
  word = is_there ? word : 0u;
  chosen[image] = WORD_OF(word);
  atomicOr(seen[image * ((words + 31u) / 32u) + word / 32u], 1u << (word % 32u));
  past[image] = uvec2(place, 0u);
}

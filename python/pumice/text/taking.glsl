// What kernels share that take a token: it becomes the model's next input, and goes to the host. The file that includes this one declares
// `words`, `images`, `slots` and `advance`, and WORD and WORD_OF, the type of the model's input and a token as one.
layout(binding = 1) buffer Seen { uint seen[]; };               // [images, (words + 31) / 32]: bits of the tokens that were there
layout(binding = 3) buffer Past { uvec2 past[]; };              // int64 [images]: tokens before the one that is made
layout(binding = 4) writeonly buffer Words { WORD chosen[]; };  // [images]: the model's next input
layout(binding = 5) writeonly buffer Ring { uint ring[]; };     // [slots, images]: what the host reads
#include "scores.glsl"

// Whether there is something to choose from: a likeliest score that is NaN or infinite leaves nothing, which the host is told.
bool is_number(uint key) { return key > 0x007fffffu && key < 0xff800000u; }

// The place of the token that is made, in its text.
uint place_of_token() { return past[image].x + advance; }

// Called by one invocation: the image's next token is `word`.
void take(uint word, bool is_there) {
  const uint place = place_of_token();
  ring[(place - setting.first) % slots * images + image] = is_there ? word : kNone;
  word = is_there ? word : 0u;
  chosen[image] = WORD_OF(word);
  atomicOr(seen[image * ((words + 31u) / 32u) + word / 32u], 1u << (word % 32u));
  past[image] = uvec2(place, 0u);
}

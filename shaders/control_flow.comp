// Device-side control flow: sets the words that guard dispatches, depending on a condition that a graph has computed.
//
// Words of a WHILE: words[first_word] = whether it continues; words[first_word + 1] = number of iterations; words[first_word + 2] = number
// of finished rounds, whose status goes to one of two slots that the host reads alternately. Words of an IF: words[first_word] = whether
// `then` runs; words[first_word + 1] = whether `else` runs.
// A WHILE with an inner WHILE is recorded as parts, and may need several rounds. Each part has a word; only the word of the part that runs
// next is nonzero. MOVE and SPLIT clear it and set another one.
// counts: if the device cannot skip dispatches by words, record i holds group counts, which are zero if its word is zero (indirect
// dispatch).
// One invocation does everything.
//
// For all devices. Recorded by cpp/graph/control_flow/predicated_code.cpp.
#version 450
layout(local_size_x = 1) in;
layout(binding = 0) readonly buffer Condition { uint condition[]; };
layout(binding = 1) buffer Words { uint words[]; };
layout(binding = 2) readonly buffer Records { uvec4 records[]; };
layout(binding = 3) writeonly buffer Counts { uint counts[]; };
layout(binding = 4) writeonly buffer Status { uint status[]; };
layout(push_constant) uniform parameter {
  uint kind;       // action: BEGIN, LOOP, ...
  uint first_word;
  uint enclosing;  // word of the construct that contains an IF, or NONE; at the end of a round, the word "a split WHILE has finished"
  uint next_word;  // the next word to set
  uint counter;    // counter to increment, or NONE; at the end of a round, the number of counters after words[first_word + 2]
  uint first_record;
  uint end_record;
} p;
const uint NONE = 0xffffffffu;
const uint BEGIN = 0u, LOOP = 1u, CHOICE = 2u, STATUS = 3u, MOVE = 4u, SPLIT = 5u;
void main() {
  const bool condition_true = (condition[0] & 255u) != 0u;
  if (p.kind == BEGIN) {
    words[p.first_word] = 1u;  // all other words are zero already
  } else if (p.kind == LOOP) {
    const uint continues = condition_true ? words[p.first_word] : 0u;
    words[p.first_word] = continues;
    words[p.first_word + 1u] += continues;
  } else if (p.kind == CHOICE) {
    const bool runs = p.enclosing == NONE || words[p.enclosing] != 0u;
    words[p.first_word] = runs && condition_true ? 1u : 0u;
    words[p.first_word + 1u] = runs && !condition_true ? 1u : 0u;
  } else if (p.kind == STATUS) {
    const uint slot = (words[p.first_word + 2u] & 1u) * (2u + p.counter);
    status[slot] = p.enclosing == NONE ? words[p.first_word] : 1u - words[p.enclosing];
    status[slot + 1u] = words[p.first_word + 1u];
    for (uint i = 0u; i < p.counter; ++i) status[slot + 2u + i] = words[p.first_word + 3u + i];
    words[p.first_word + 2u] += 1u;
  } else if (words[p.first_word] != 0u) {
    // MOVE: sets words[next_word]; SPLIT: sets words[next_word] if the condition is true, else words[next_word + 1]
    words[p.first_word] = 0u;
    words[p.kind == MOVE || condition_true ? p.next_word : p.next_word + 1u] = 1u;
    if (p.counter != NONE && (p.kind == MOVE || condition_true)) words[p.counter] += 1u;
  }
  for (uint i = p.first_record; i < p.end_record; ++i) {
    const bool on = words[records[i].x] != 0u;
    counts[i * 3u] = on ? records[i].y : 0u;
    counts[i * 3u + 1u] = on ? records[i].z : 0u;
    counts[i * 3u + 2u] = on ? records[i].w : 0u;
  }
}

// What runs next: the predicate words of an IF or WHILE, from a condition that a graph made and the word of what encloses it. Words:
//   of a WHILE  words[own]: it goes on;  words[own + 1]: how often its body has run;
//               words[own + 2]: rounds that have ended, each with its status in one of two places that the host reads in turn;
//   of an IF    words[own]: then;        words[own + 1]: else.
// Where words cannot skip dispatches, group counts do: counts of record i are its groups where the word that it names is not zero.
#version 450
layout(local_size_x = 1) in;
layout(binding = 0) readonly buffer Condition { uint condition[]; };
layout(binding = 1) buffer Words { uint words[]; };
layout(binding = 2) readonly buffer Records { uvec4 records[]; };
layout(binding = 3) writeonly buffer Counts { uint counts[]; };
layout(binding = 4) writeonly buffer Status { uint status[]; };
layout(push_constant) uniform parameter {
  uint kind;       // 0: begin a WHILE, 1: its condition is there, 2: the condition of an IF is, 3: a round of a WHILE ends
  uint own;
  uint enclosing;  // the word of what encloses an IF, or ALWAYS
  uint first_record;
  uint end_record;
} p;
const uint ALWAYS = 0xffffffffu;
void main() {
  const bool yes = (condition[0] & 255u) != 0u;
  if (p.kind == 0u) {
    words[p.own] = 1u;
    words[p.own + 1u] = 0u;
    words[p.own + 2u] = 0u;
  } else if (p.kind == 1u) {
    const uint goes_on = yes ? words[p.own] : 0u;
    words[p.own] = goes_on;
    words[p.own + 1u] += goes_on;
  } else if (p.kind == 3u) {
    const uint place = (words[p.own + 2u] & 1u) * 2u;
    status[place] = words[p.own];
    status[place + 1u] = words[p.own + 1u];
    words[p.own + 2u] += 1u;
  } else {
    const bool runs = p.enclosing == ALWAYS || words[p.enclosing] != 0u;
    words[p.own] = runs && yes ? 1u : 0u;
    words[p.own + 1u] = runs && !yes ? 1u : 0u;
  }
  for (uint i = p.first_record; i < p.end_record; ++i) {
    const bool on = words[records[i].x] != 0u;
    counts[i * 3u] = on ? records[i].y : 0u;
    counts[i * 3u + 1u] = on ? records[i].z : 0u;
    counts[i * 3u + 2u] = on ? records[i].w : 0u;
  }
}

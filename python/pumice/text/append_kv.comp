// Copies the first `count` rows of [batch, heads, stride, size] into a KV cache [batch, heads, capacity, size], from row `past` on.
// WORDS: copies elements as uint32 without conversion.
layout(local_size_x = 64) in;
#if WORDS
layout(binding = 0) readonly buffer Rows { uint rows[]; };
layout(binding = 1) writeonly buffer Cache { uint cache[]; };
#else
layout(binding = 0) readonly buffer Rows { sfp rows[]; };
layout(binding = 1) buffer Cache { sfp cache[]; };
#endif
layout(binding = 2) readonly buffer Past { uvec2 past[]; };  // int64
layout(push_constant) uniform Parameters { uint elements, heads, count, stride, room, size; };

void main() {
  const uint i = gl_GlobalInvocationID.x;
  if (i >= elements) return;
  const uint column = i % size, row = i / size % count, head = i / (size * count);
  const uint place = past[head / heads].x + row;
  if (place >= room) return;
  const uint to = (head * room + place) * size + column, from = (head * stride + row) * size + column;
#if WORDS
  cache[to] = rows[from];
#else
  buffer_st1(cache, to, buffer_ld1(rows, from));
#endif
}

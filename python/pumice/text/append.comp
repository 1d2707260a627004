// Writes rows of an image, the first `count` of [images, heads, stride, size], into its cache, [images, heads, room, size], from row
// `past` on.
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer Rows { sfp rows[]; };
layout(binding = 1) buffer Cache { sfp cache[]; };
layout(binding = 2) readonly buffer Past { uvec2 past[]; };  // int64
layout(push_constant) uniform Parameters { uint elements, heads, count, stride, room, size; };

void main() {
  const uint i = gl_GlobalInvocationID.x;
  if (i >= elements) return;
  const uint column = i % size, row = i / size % count, head = i / (size * count);
  const uint place = past[head / heads].x + row;
  if (place < room) buffer_st1(cache, (head * room + place) * size + column, buffer_ld1(rows, (head * stride + row) * size + column));
}

// Copies the first `count` rows of [batch, heads, stride, size] into a KV cache [batch, heads, capacity, size], from row `past` on.
// AS_UINT32: copies elements as uint32 without conversion.
layout(local_size_x = 64) in;
#if AS_UINT32
layout(binding = 0) readonly buffer Src { uint src[]; };
layout(binding = 1) writeonly buffer Cache { uint cache[]; };
#else
layout(binding = 0) readonly buffer Src { sfp src[]; };
layout(binding = 1) buffer Cache { sfp cache[]; };
#endif
layout(binding = 2) readonly buffer Past { uvec2 past[]; };  // int64
layout(push_constant) uniform Parameters { uint elements, heads, count, stride, capacity, size; };

void main() {
  const uint i = gl_GlobalInvocationID.x;
  if (i >= elements) return;
  const uint column = i % size, row = i / size % count, head = i / (size * count);
  const uint position = past[head / heads].x + row;
  if (position >= capacity) return;
  const uint dst_index = (head * capacity + position) * size + column, src_index = (head * stride + row) * size + column;
#if AS_UINT32
  cache[dst_index] = src[src_index];
#else
  buffer_st1(cache, dst_index, buffer_ld1(src, src_index));
#endif
}

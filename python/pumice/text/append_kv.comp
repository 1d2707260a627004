// cache[b, h, past[b] + r, :] = src[b, h, r, :] for r < count: appends rows of src [batch, heads, stride, size] to a KV cache
// [batch, heads, capacity, size]. One invocation per element. AS_UINT32: copies uint32 without conversion (for int8 caches).
// Selected by Decoder._record_append.
layout(local_size_x = 64) in;
#if AS_UINT32
layout(binding = 0) readonly buffer Src { uint src[]; };
layout(binding = 1) writeonly buffer Cache { uint cache[]; };
#else
layout(binding = 0) readonly buffer Src { sfp src[]; };
layout(binding = 1) buffer Cache { sfp cache[]; };
#endif
layout(binding = 2) readonly buffer Past { uvec2 past[]; };  // int64 [batch]: cache lengths
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

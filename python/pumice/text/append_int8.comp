// Writes rows of floats, [images, heads, rows, size], into a cache of int8, [images, heads, room, size], from row `past` on, with a scale for
// each row of a head, [images, heads, room]: the largest magnitude of a row becomes 127. A row that holds what is no finite number gets a
// scale that is none either. A workgroup makes a row.
const uint kInvocations = 32u;
layout(local_size_x = 32) in;
layout(binding = 0) readonly buffer Rows { sfp rows[]; };
layout(binding = 1) writeonly buffer Cache { uint cache[]; };
layout(binding = 2) buffer Scales { sfp scales[]; };
layout(binding = 3) readonly buffer Past { uvec2 past[]; };  // int64
layout(push_constant) uniform Parameters { uint heads, count, room, size; };

shared uint largest;  // the bits of a magnitude, which are in the order of the numbers, and those of what is none are the largest

float element(uint at) { return float(buffer_ld1(rows, at)); }

void main() {
  const uint row = gl_WorkGroupID.x, head = gl_WorkGroupID.y, from = (head * count + row) * size;
  if (gl_LocalInvocationID.x == 0u) largest = 0u;
  barrier();
  uint own = 0u;
  for (uint i = gl_LocalInvocationID.x; i < size; i += kInvocations) own = max(own, floatBitsToUint(element(from + i)) & 0x7fffffffu);
  atomicMax(largest, own);
  barrier();  // the largest of all is there
  const uint place = past[head / heads].x + row, cell = head * room + place;
  if (place >= room) return;
  const float scale = uintBitsToFloat(largest) / 127.0;
  if (gl_LocalInvocationID.x == 0u) buffer_st1(scales, cell, afp(scale));
  for (uint word = gl_LocalInvocationID.x; word < size / 4u; word += kInvocations) {
    uint bytes = 0u;
    for (uint i = 0u; i < 4u; ++i) {
      const float level = scale > 0.0 ? clamp(roundEven(element(from + word * 4u + i) / scale), -127.0, 127.0) : 0.0;
      bytes |= (uint(int(level)) & 0xffu) << i * 8u;
    }
    cache[cell * (size / 4u) + word] = bytes;
  }
}

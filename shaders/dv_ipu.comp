// Image processing unit of the dv SDK: resamples a texture, reads an image, or blends the texture over the image; converts the pixel
// format.
//
// TEX, RD: 0 absent, else bytes per pixel of the texture and of the image; TEX 1 has indices into an RGBA palette. WR: bytes per pixel of
// the result; 6 means three fp16 channels. The texture is in RGBA order; image and result have the byte order of rd_byte_index and
// wr_channel. All arithmetic is in integers, so results are exact.
// An invocation writes one word of a row: the y axis of the grid is the row.
//
// For all devices. Selected in cpp/dv/ipu_lowering.cpp.
#version 450
#define GRID_AXES 3
#include "include/grid.glsl"
layout(push_constant) uniform parameter {
  uint tex_width, tex_height;
  uint width, height;
  uint tex_first, rd_first, wr_first;  // in bytes
  uint rd_stride, wr_stride;           // in bytes, modulo 2^32
  uint bilinear, transposed;
  uint alpha;          // alpha of all pixels; 256: alpha per pixel
  uint rd_byte_index;  // byte positions of red, green, blue and alpha, 4 bits each
  uint wr_channel;     // channel at each byte position, 4 bits each
  uint by_255;         // 1: fp16 results are bytes / 255; 0: bytes - `subtracted`
  uint subtracted;     // values subtracted from red, green and blue, 8 bits each
} p;
#include "include/byte_stores.glsl"
layout(local_size_x = LOCAL_SIZE) in;
layout(binding = 0) buffer W { uint wr[]; };
#if TEX
layout(binding = 1) readonly buffer T { uint tex[]; };
#endif
#if TEX == 1
layout(binding = 2) readonly buffer P { uint palette[]; };
#endif
#if RD
layout(binding = 3) readonly buffer R { uint rd[]; };
#endif

#if TEX
uint load_texel(uint x, uint y, uint channel) {
  const uint first = p.tex_first + (y * p.tex_width + x) * TEX;
#if TEX == 1
  return palette[pm_load_u8(tex, first) & 31u] >> 8u * channel & 0xffu;
#elif TEX == 3
  if (channel == 3u) return 255u;
  return pm_load_u8(tex, first + channel);
#else
  return pm_load_u8(tex, first + channel);
#endif
}

// Returns the two texels around the centre of pixel `at`, and the weight of the second in 1/256.
uvec3 find_neighbours(uint at, uint size, uint texels) {
  const uint whole = at * texels / size;
  const int rest = int(2u * (at * texels % size) + texels) - int(size), unit = 2 * int(size);  // rest / unit: distance from texel `whole`
  const int below = rest >= 0 ? rest / unit : -1, remainder = rest - below * unit;
  const int first = int(whole) + below, last = int(texels) - 1;
  return uvec3(clamp(first, 0, last), clamp(first + 1, 0, last), (uint(remainder) * 256u + size) / uint(unit));
}

uint sample_texture(uint x, uint y, uint channel) {
  const uvec2 at = p.transposed != 0u ? uvec2(y, x) : uvec2(x, y);
  const uvec2 size = p.transposed != 0u ? uvec2(p.height, p.width) : uvec2(p.width, p.height);
  if (p.bilinear == 0u)
    return load_texel((at.x * p.tex_width + p.tex_width / 2u) / size.x, (at.y * p.tex_height + p.tex_height / 2u) / size.y, channel);
  const uvec3 u = find_neighbours(at.x, size.x, p.tex_width), v = find_neighbours(at.y, size.y, p.tex_height);
  const uint above = load_texel(u.x, v.x, channel) * (256u - u.z) + load_texel(u.y, v.x, channel) * u.z;
  const uint below = load_texel(u.x, v.y, channel) * (256u - u.z) + load_texel(u.y, v.y, channel) * u.z;
  return (above * (256u - v.z) + below * v.z + 0x8000u) >> 16;
}
#endif

#if RD
uint read_image(uint x, uint y, uint channel) {
#if RD == 3
  if (channel == 3u) return 255u;
#endif
  return pm_load_u8(rd, p.rd_first + y * p.rd_stride + x * RD + (p.rd_byte_index >> 4u * channel & 0xfu));
}
#endif

uint compute_color(uint x, uint y, uint channel) {
#if TEX && RD
  const uint alpha = p.alpha < 256u ? p.alpha : sample_texture(x, y, 3u);
  const uint over = channel == 3u ? 255u : sample_texture(x, y, channel);
  return (over * alpha + read_image(x, y, channel) * (255u - alpha) + 127u) / 255u;
#else
  if (channel == 3u && p.alpha < 256u) return p.alpha;
#if TEX
  return sample_texture(x, y, channel);
#else
  return read_image(x, y, channel);
#endif
#endif
}

// Returns the bits of the fp16 nearest to value / 255.
uint fraction_to_fp16(uint value) {
  if (value == 0u) return 0u;
  uint shift = 0u;
  while (value << shift < 255u) ++shift;  // value / 255 = m * 2^-shift with m in [1, 2)
  return (15u - shift << 10) + ((value << 11u + shift) + 255u) / 510u - 1024u;
}

uint int_to_fp16(int value) {
  if (value == 0) return 0u;
  const uint magnitude = uint(abs(value));
  const int exponent = findMSB(magnitude);
  return (value < 0 ? 0x8000u : 0u) | uint(15 + exponent) << 10 | (magnitude << 10 - exponent & 0x3ffu);
}

uint compute_output_byte(uint y, uint at) {
  const uint x = at / WR, byte_index = at % WR;
#if WR == 6
  const uint channel = p.wr_channel >> 4u * (byte_index / 2u) & 0xfu, value = compute_color(x, y, channel);
  const uint bits = p.by_255 != 0u ? fraction_to_fp16(value) : int_to_fp16(int(value) - int(p.subtracted >> 8u * channel & 0xffu));
  return bits >> 8u * (byte_index & 1u) & 0xffu;
#else
  return compute_color(x, y, p.wr_channel >> 4u * byte_index & 0xfu);
#endif
}

void main() {
  const uint words = (p.width * WR + 6u) / 4u;  // words that a row may touch
  const uvec3 group = grid_group((words + gl_WorkGroupSize.x - 1u) / gl_WorkGroupSize.x, p.height);
  const uint y = group.y, begin = p.wr_first + y * p.wr_stride, end = begin + p.width * WR;
  const uint word = begin / 4u + group.x * gl_WorkGroupSize.x + gl_LocalInvocationID.x, byte = word * 4u;
  if (is_past_grid(group, 1u) || byte >= end) return;
  const uint first = max(byte, begin) - byte, last = min(byte + 4u, end) - byte;
  uint bytes = 0u;
  for (uint i = first; i < last; ++i) bytes |= compute_output_byte(y, byte + i - begin) << 8u * i;
  pm_store_bytes(wr, word, bytes, first, last);
}

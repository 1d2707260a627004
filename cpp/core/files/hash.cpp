#include "core/files/hash.h"

#include <algorithm>
#include <bit>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace pumice {
namespace {

// First 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr uint32_t kRoundConstants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

#if defined(__x86_64__)

bool has_sha_instructions() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSSE3) || !(c & bit_SSE4_1)) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA);
}

// Processes a block with the SHA-NI instructions, about ten times as fast: cache keys of a model's kernels hash 50 KB each. The state is in
// two vectors, (f, e, b, a) and (h, g, d, c); one instruction computes two rounds.
__attribute__((target("sha,sse4.1,ssse3"))) void process_block_sha_ni(std::array<uint32_t, 8>& state, const std::byte* data) {
  const auto load = [](const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); };
  const __m128i swapped = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);  // words are big-endian
  __m128i words[4];
  for (int i = 0; i < 4; ++i) words[i] = _mm_shuffle_epi8(load(data + 16 * i), swapped);
  const __m128i badc = _mm_shuffle_epi32(load(&state[0]), 0xb1), hgfe = _mm_shuffle_epi32(load(&state[4]), 0x1b);
  const __m128i feba_before = _mm_alignr_epi8(badc, hgfe, 8), hgdc_before = _mm_blend_epi16(hgfe, badc, 0xf0);
  __m128i feba = feba_before, hgdc = hgdc_before;
  for (int i = 0; i < 16; ++i) {
    __m128i& now = words[i % 4];
    if (i >= 4) {
      const __m128i last = words[(i + 3) % 4];
      const __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(now, words[(i + 1) % 4]), _mm_alignr_epi8(last, words[(i + 2) % 4], 4));
      now = _mm_sha256msg2_epu32(sum, last);
    }
    const __m128i added = _mm_add_epi32(now, load(&kRoundConstants[4 * i]));
    hgdc = _mm_sha256rnds2_epu32(hgdc, feba, added);
    feba = _mm_sha256rnds2_epu32(feba, hgdc, _mm_shuffle_epi32(added, 0x0e));
  }
  const __m128i abef = _mm_shuffle_epi32(_mm_add_epi32(feba, feba_before), 0x1b);
  const __m128i ghcd = _mm_shuffle_epi32(_mm_add_epi32(hgdc, hgdc_before), 0xb1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(&state[0]), _mm_blend_epi16(abef, ghcd, 0xf0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(&state[4]), _mm_alignr_epi8(ghcd, abef, 8));
}

#endif

uint32_t read_big_endian(const std::byte* data) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | std::to_integer<uint32_t>(data[i]);
  return value;
}

}  // namespace

void Sha256::process_block(const std::byte* data) {
#if defined(__x86_64__)
  static const bool has_instructions = has_sha_instructions();
  if (has_instructions) return process_block_sha_ni(state_, data);
#endif
  uint32_t w[64];
  for (int i = 0; i < 16; ++i) w[i] = read_big_endian(data + 4 * i);
  for (int i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (int i = 0; i < 64; ++i) {
    const uint32_t t1 = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) + kRoundConstants[i] + w[i];
    const uint32_t t2 = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const uint32_t next[8] = {a, b, c, d, e, f, g, h};
  for (int i = 0; i < 8; ++i) state_[i] += next[i];
}

Sha256& Sha256::add_bytes(std::span<const std::byte> data) {
  size_t num_pending = total_ % 64;
  total_ += data.size();
  if (num_pending != 0) {
    const size_t num_copied = std::min(64 - num_pending, data.size());
    std::copy_n(data.begin(), num_copied, pending_.begin() + num_pending);
    data = data.subspan(num_copied);
    if (num_pending + num_copied < 64) return *this;
    process_block(pending_.data());
  }
  for (; data.size() >= 64; data = data.subspan(64)) process_block(data.data());
  std::copy(data.begin(), data.end(), pending_.begin());
  return *this;
}

Sha256& Sha256::add_field(std::string_view text) {
  add_field(uint64_t{text.size()});
  return add_bytes(std::as_bytes(std::span(text)));
}

Sha256& Sha256::add_field(uint64_t value) {
  return add_bytes(std::as_bytes(std::span(&value, 1)));
}

std::array<uint8_t, 32> Sha256::digest() {
  const uint64_t bits = total_ * 8;
  std::array<std::byte, 72> tail{std::byte{0x80}};  // padding: a 1 bit, zeros, then the length in the last 8 bytes of a block
  const size_t zeros = (119 - total_ % 64) % 64;
  for (int i = 0; i < 8; ++i) tail[1 + zeros + i] = std::byte(bits >> (56 - 8 * i));
  add_bytes(std::span(tail).first(9 + zeros));
  std::array<uint8_t, 32> result;
  for (int i = 0; i < 32; ++i) result[i] = static_cast<uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
  return result;
}

std::string Sha256::hex() {
  std::string text;
  for (const uint8_t byte : digest()) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

}  // namespace pumice

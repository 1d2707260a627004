// LSH projection: y[s] = 1 if the sum over all rows of x of weight * hash(seed s, row) is above 0, else 0.
//
// seeds: [num_seeds], 32 bits. x: rows of row_bytes bytes; ELEMENT_BYTES: bytes per element. weights (WEIGHTED): float, one per row. y:
// uint. The hash is FarmHash's 64-bit fingerprint of the seed's four bytes and the row, as a signed integer. The sum has the rounding and
// order of doubles; it is computed with 53-bit mantissas in integers, so devices without doubles give the same result.
// Workgroup = one seed. Each of the 64 invocations hashes one row at a time, and the first invocation adds the products in order.
//
// Requires 64-bit integers (or their emulation by word pairs). Selected in cpp/operators/ml/lsh_projection.cpp.
#version 450
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
layout(local_size_x = 64) in;
#include "include/grid.glsl"
layout(binding = 0) readonly buffer S { uint seeds[]; };
layout(binding = 1) readonly buffer X { uint x[]; };
#if WEIGHTED
layout(binding = 2) readonly buffer W { uint weights[]; };
layout(binding = 3) writeonly buffer Y { uint y[]; };
#else
layout(binding = 2) writeonly buffer Y { uint y[]; };
#endif
layout(push_constant) uniform parameter {
  uint num_seeds, rows, row_bytes;
  uint seeds_offset, x_offset, y_offset;
#if WEIGHTED
  uint weights_offset;
#endif
} p;

const uint64_t k0 = 0xc3a5c85c97cb3127UL, k1 = 0xb492b66fbe98f273UL, k2 = 0x9ae16a3b2f90404fUL;
const uint kFinite = 0u, kPlusInfinity = 1u, kMinusInfinity = 2u, kNan = 4u;  // flags: infinities and NaN seen so far

// A finite number: 0, or one with a 53-bit mantissa.
struct SoftDouble {
  uint64_t mantissa;
  int exponent;
  bool negative;
};

shared SoftDouble products[64];
shared uint kinds[64];
uint seed, first_byte;  // first_byte: first byte of the row

// ---- the key: the seed, then the row

uint row_word(uint at) {
  const uint byte_ = first_byte + at, word = byte_ >> 2, shift = 8u * (byte_ & 3u);
  if (shift == 0u) return x[word];
  const uint last = (p.x_offset * ELEMENT_BYTES + p.rows * p.row_bytes - 1u) >> 2;
  return x[word] >> shift | x[min(word + 1u, last)] << (32u - shift);
}

uint key_word(uint at) {
  if (at >= 4u) return row_word(at - 4u);
  return at == 0u ? seed : seed >> 8u * at | row_word(0u) << (32u - 8u * at);
}

uint64_t key_pair(uint at) { return uint64_t(key_word(at)) | uint64_t(key_word(at + 4u)) << 32; }

// ---- the hash

uint64_t rotate_right(uint64_t v, uint by) { return v >> by | v << (64u - by); }
uint64_t shift_mix(uint64_t v) { return v ^ v >> 47; }

uint64_t hash_len_16(uint64_t u, uint64_t v, uint64_t m) {
  const uint64_t a = shift_mix((u ^ v) * m), b = shift_mix((v ^ a) * m);
  return b * m;
}

struct HashPair {
  uint64_t first, second;
};

HashPair weak_hash_32(uint at, uint64_t a, uint64_t b) {
  const uint64_t q = key_pair(at), r = key_pair(at + 8u), s = key_pair(at + 16u), t = key_pair(at + 24u);
  a += q;
  b = rotate_right(b + a + t, 21u);
  const uint64_t c = a;
  a += r + s;
  b += rotate_right(a, 44u);
  return HashPair(a + t, b + c);
}

uint64_t hash_len_17_to_32(uint n, uint64_t m) {
  const uint64_t a = key_pair(0u) * k1, b = key_pair(8u), c = key_pair(n - 8u) * m, d = key_pair(n - 16u) * k2;
  return hash_len_16(rotate_right(a + b, 43u) + rotate_right(c, 30u) + d, a + rotate_right(b + k2, 18u) + c, m);
}

uint64_t hash_len_33_to_64(uint n, uint64_t m) {
  const uint64_t a = key_pair(0u) * k2, b = key_pair(8u), c = key_pair(n - 8u) * m, d = key_pair(n - 16u) * k2;
  const uint64_t u = rotate_right(a + b, 43u) + rotate_right(c, 30u) + d, v = hash_len_16(u, a + rotate_right(b + k2, 18u) + c, m);
  const uint64_t e = key_pair(16u) * m, f = key_pair(24u), g = (u + key_pair(n - 32u)) * m, h = (v + key_pair(n - 24u)) * m;
  return hash_len_16(rotate_right(e + f, 43u) + rotate_right(g, 30u) + h, e + rotate_right(f + a, 18u) + g, m);
}

uint64_t hash_len_over_64(uint n) {
  uint64_t u = 81UL * k2 + key_pair(0u), v = 81UL * k1 + 113UL, z = shift_mix(v * k2 + 113UL) * k2;
  HashPair a = HashPair(0UL, 0UL), b = HashPair(0UL, 0UL);
  const uint blocks = (n - 1u) / 64u;
  uint64_t m = k1;
  for (uint block = 0u; block <= blocks; ++block) {
    const bool is_last = block == blocks;
    const uint i = is_last ? n - 64u : 64u * block;
    const uint64_t scale = is_last ? 9UL : 1UL;
    if (is_last) {
      m = k1 + 2UL * (z & 255UL);
      b.first += uint64_t(n - 1u & 63u);
      a.first += b.first;
      b.first += a.first;
    }
    u = rotate_right(u + v + a.first + key_pair(i + 8u), 37u) * m;
    v = rotate_right(v + a.second + key_pair(i + 48u), 42u) * m;
    u ^= scale * b.second;
    v += scale * a.first + key_pair(i + 40u);
    z = rotate_right(z + b.first, 33u) * m;
    a = weak_hash_32(i, a.second * m, u + b.first);
    b = weak_hash_32(i + 32u, z + b.second, v + key_pair(i + 16u));
    const uint64_t swapped = z;
    z = u;
    u = swapped;
  }
  return hash_len_16(hash_len_16(a.first, b.first, m) + shift_mix(v) * k0 + z, hash_len_16(a.second, b.second, m) + u, m);
}

// Returns the hash of a key of n >= 4 bytes.
uint64_t fingerprint64(uint n) {
  const uint64_t m = k2 + 2UL * uint64_t(n);
  if (n > 64u) return hash_len_over_64(n);
  if (n > 32u) return hash_len_33_to_64(n, m);
  if (n > 16u) return hash_len_17_to_32(n, m);
  if (n < 8u) return hash_len_16(uint64_t(n) + (uint64_t(key_word(0u)) << 3), uint64_t(key_word(n - 4u)), m);
  const uint64_t a = key_pair(0u) + k2, b = key_pair(n - 8u);
  return hash_len_16(rotate_right(b, 37u) * m + a, (rotate_right(a, 25u) + b) * m, m);
}

// ---- double-precision arithmetic in integers

// Rounds m * 2^exponent to 53 bits, to nearest even; `has_remainder`: lower bits were cut off.
SoftDouble round_soft_double(uint64_t m, int exponent, bool negative, bool has_remainder) {
  if (m == 0UL) return SoftDouble(0UL, 0, false);
  const uint high = uint(m >> 32);
  const int shift = (high != 0u ? findMSB(high) + 32 : findMSB(uint(m))) - 52;
  if (shift <= 0) return SoftDouble(m << uint(-shift), exponent + shift, negative);
  const uint64_t half_ = 1UL << uint(shift - 1), rest = m & (half_ << 1) - 1UL;
  m >>= uint(shift);
  exponent += shift;
  if (rest > half_ || (rest == half_ && (has_remainder || (m & 1UL) != 0UL))) ++m;
  if (m == 1UL << 53) m >>= 1, ++exponent;
  return SoftDouble(m, exponent, negative);
}

SoftDouble to_soft_double(uint64_t hash) {
  const bool negative = int64_t(hash) < 0L;
  return round_soft_double(negative ? 0UL - hash : hash, 0, negative, false);
}

// Returns a * b * 2^exponent. a has at most 53 significant bits and b has 24, so the product of a's high word and b fits 64 bits.
SoftDouble multiply_soft_double(SoftDouble a, uint b, int exponent, bool negative) {
  const uint64_t low = (a.mantissa & 0xffffffffUL) * uint64_t(b), high = (a.mantissa >> 32) * uint64_t(b) + (low >> 32);
  const uint rest = uint(low);
  return round_soft_double(high << 18 | uint64_t(rest >> 14), a.exponent + exponent + 14, a.negative != negative, (rest & 0x3fffu) != 0u);
}

SoftDouble add_soft_double(SoftDouble a, SoftDouble b) {
  if (a.mantissa == 0UL) return b;
  if (b.mantissa == 0UL) return a;
  if (a.exponent < b.exponent || (a.exponent == b.exponent && a.mantissa < b.mantissa)) {
    const SoftDouble swapped = a;
    a = b;
    b = swapped;
  }
  const uint distance = uint(a.exponent - b.exponent);
  const uint64_t large = a.mantissa << 10, all = b.mantissa << 10, small = distance < 64u ? all >> distance : 0UL;
  const bool has_remainder = distance >= 64u || small << distance != all;
  const uint64_t m = a.negative == b.negative ? large + small : large - small - (has_remainder ? 1UL : 0UL);
  return round_soft_double(m, a.exponent - 10, a.negative, has_remainder);
}

// ---- a row: weight times hash

void hash_weighted_row(uint row) {
  const uint lane = gl_LocalInvocationID.x;
  first_byte = p.x_offset * ELEMENT_BYTES + row * p.row_bytes;
  const SoftDouble hash = to_soft_double(fingerprint64(p.row_bytes + 4u));
  kinds[lane] = kFinite;
  products[lane] = hash;
#if WEIGHTED
  const uint weight = weights[p.weights_offset + row], exponent = weight >> 23 & 255u, fraction = weight & 0x7fffffu;
  const bool negative = weight >> 31 != 0u;
  if (exponent == 255u) {
    kinds[lane] = fraction != 0u || hash.mantissa == 0UL ? kNan : hash.negative == negative ? kPlusInfinity : kMinusInfinity;
  } else if (exponent == 0u && fraction == 0u) {
    products[lane].mantissa = 0UL;
  } else {
    const uint up = exponent == 0u ? uint(23 - findMSB(fraction)) : 0u;
    const uint mantissa = exponent == 0u ? fraction << up : fraction | 0x800000u;
    products[lane] = multiply_soft_double(hash, mantissa, int(max(exponent, 1u)) - 150 - int(up), negative);
  }
#endif
}

void main() {
  const uint group = grid_group(), lane = gl_LocalInvocationID.x;
  if (group >= p.num_seeds) return;
  seed = seeds[p.seeds_offset + group];
  SoftDouble sum = SoftDouble(0UL, 0, false);
  uint kind = kFinite;
  for (uint from = 0u; from < p.rows; from += gl_WorkGroupSize.x) {
    if (from + lane < p.rows) hash_weighted_row(from + lane);
    barrier();
    if (lane == 0u)
      for (uint k = 0u; k < min(gl_WorkGroupSize.x, p.rows - from); ++k) {
        kind |= kinds[k];
        sum = add_soft_double(sum, products[k]);
      }
    barrier();  // wait until the products have been added
  }
  if (lane != 0u) return;
  const bool is_above = kind == kFinite ? sum.mantissa != 0UL && !sum.negative : kind == kPlusInfinity;
  y[p.y_offset + group] = is_above ? 1u : 0u;
}

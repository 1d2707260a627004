// Integer types of the preamble, sint8 and sint16. Packed elements are `int`s with lanes from low to high bits; storing a lane preserves
// the other lanes. Arithmetic uses int, or int16_t if the device has it.
#include "shader/preamble/preamble_sections.h"

namespace pumice {
namespace {

constexpr std::string_view kIntPacking = R"(
#define packInt4x8(v) pm_pack_bytes(ivec4(v))
#define unpackInt4x8(v) pm_unpack_bytes(int(v))
#define packInt2x16(v) pm_pack_shorts(ivec2(v))
#define unpackInt2x16(v) pm_unpack_shorts(int(v))
int pm_pack_bytes(ivec4 v) { v &= 0xff; return v.r | (v.g << 8) | (v.b << 16) | (v.a << 24); }
ivec4 pm_unpack_bytes(int word) { return ivec4(word << 24, word << 16, word << 8, word) >> 24; }
int pm_pack_shorts(ivec2 v) { return (v.r & 0xffff) | (v.g << 16); }
ivec2 pm_unpack_shorts(int word) { return ivec2(word << 16, word) >> 16; }
#define pm_store_bits_of_int(buf, i, lanes_log2, bits, v) \
  do { \
    uint pm_at_ = uint(i); \
    int pm_lane_ = int(v), pm_by_ = int(pm_at_ & ((1u << lanes_log2) - 1u)) * bits, pm_old_; \
    pm_at_ >>= lanes_log2; \
    int pm_seen_ = atomicCompSwap(buf[pm_at_], 0, 0); \
    do { \
      pm_old_ = pm_seen_; \
      pm_seen_ = atomicCompSwap(buf[pm_at_], pm_old_, bitfieldInsert(pm_old_, pm_lane_, pm_by_, bits)); \
    } while (pm_seen_ != pm_old_); \
  } while (false)
)";

// Float conversions round to nearest, ties away from zero; NaN gives 0.
constexpr std::string_view kFloatToInt8 = R"(
#define float2int8(v) pm_float2int8(vec4(float(v))).x
#define float2int8vec4(v) pm_float2int8(vec4(v))
ivec4 pm_float2int8(vec4 v) {
  v = mix(v, vec4(0.0), greaterThan(floatBitsToUint(v) & 0x7fffffffu, uvec4(0x7f800000u)));
  v = clamp(v, vec4(-127.0), vec4(127.0));
  vec4 whole = trunc(v);
  return ivec4(whole) + ivec4(sign(v)) * ivec4(greaterThanEqual(abs(v - whole), vec4(0.5)));
}
)";

// --- 8 bits

constexpr std::string_view kInt8 = R"(
#define sint8vec4 int
#define aint8 int
#define aint8vec4 ivec4
#define i8buffer_ld4(buf, i) pm_unpack_bytes(buf[i])
#define i8buffer_sm4(buf, i) buf[i]
#define i8buffer_st4(buf, i, v) buf[i] = pm_pack_bytes(ivec4(v))
#define i8buffer_cp4(buf, i, sbuf, si) buf[i] = sbuf[si]
#define i8buffer_cp1to4(buf, i, sbuf, si4) \
  do { \
    uvec4 pm_from_ = uvec4(si4); \
    ivec4 pm_bytes_; \
    pm_bytes_.r = i8buffer_ld1(sbuf, pm_from_.r); \
    pm_bytes_.g = i8buffer_ld1(sbuf, pm_from_.g); \
    pm_bytes_.b = i8buffer_ld1(sbuf, pm_from_.b); \
    pm_bytes_.a = i8buffer_ld1(sbuf, pm_from_.a); \
    buf[i] = pm_pack_bytes(pm_bytes_); \
  } while (false)
#define i8buffer_cp4to1(buf, i4, sbuf, si) \
  do { \
    uvec4 pm_to_ = uvec4(i4); \
    ivec4 pm_bytes_ = pm_unpack_bytes(sbuf[si]); \
    i8buffer_st1(buf, pm_to_.r, pm_bytes_.r); \
    i8buffer_st1(buf, pm_to_.g, pm_bytes_.g); \
    i8buffer_st1(buf, pm_to_.b, pm_bytes_.b); \
    i8buffer_st1(buf, pm_to_.a, pm_bytes_.a); \
  } while (false)
)";

constexpr std::string_view kInt8Elements = R"(
#define sint8 int8_t
#define i8buffer_ld1(buf, i) int(buf[i])
#define i8buffer_st1(buf, i, v) buf[i] = int8_t(int(v))
#define i8buffer_cp1(buf, i, sbuf, si) buf[i] = sbuf[si]
)";

constexpr std::string_view kInt8Packed = R"(
#define sint8 int
int pm_int8_shift_;
uint pm_int8_word(uint i) { pm_int8_shift_ = int(i & 3u) << 3; return i >> 2; }
int pm_int8_lane(int word) { return bitfieldExtract(word, pm_int8_shift_, 8); }
#define i8buffer_ld1(buf, i) pm_int8_lane(buf[pm_int8_word(uint(i))])
#define i8buffer_st1(buf, i, v) pm_store_bits_of_int(buf, i, 2, 8, v)
#define i8buffer_cp1(buf, i, sbuf, si) pm_store_bits_of_int(buf, i, 2, 8, pm_int8_lane(sbuf[pm_int8_word(uint(si))]))
)";

// --- 16 bits

constexpr std::string_view kShortArithmetic = R"(
#define aint16 int16_t
#define aint16vec4 i16vec4
)";
constexpr std::string_view kIntArithmetic = R"(
#define aint16 int
#define aint16vec4 ivec4
)";

// One element of 16 or 32 bits per index.
constexpr std::string_view kInt16Elements = R"(
uint pm_int16_index_;
uint pm_save_int16_index(uint i) { return pm_int16_index_ = i; }
#define i16buffer_ld1(buf, i) int(buf[i])
#define i16buffer_ld2(buf, i) ivec2(int(buf[pm_save_int16_index(uint(i))]), int(buf[pm_int16_index_ + 1u]))
#define i16buffer_ld4(buf, i) aint16vec4(buf[i])
#define i16buffer_sm4(buf, i) lint16vec4(buf[i])
#define i16buffer_st1(buf, i, v) buf[i] = sint16(int(v))
#define i16buffer_st2(buf, i, v) \
  do { \
    uint pm_i_ = uint(i); \
    ivec2 pm_pair_ = ivec2(v); \
    buf[pm_i_] = sint16(pm_pair_.x); \
    buf[pm_i_ + 1u] = sint16(pm_pair_.y); \
  } while (false)
#define i16buffer_st4(buf, i, v) buf[i] = sint16vec4(ivec4(v))
#define lint162aint16(v) aint16(v)
#define lint162aint16vec4(v) aint16vec4(v)
)";

constexpr std::string_view kInt16Packed = R"(
#define sint16 int
#define sint16vec4 ivec2
#define lint16 int
#define lint16vec4 ivec2
uint pm_int16_index_;
uint pm_int16_word(uint i) { pm_int16_index_ = i; return i >> 1; }
int pm_int16_lane(int word) { return bitfieldExtract(word, int(pm_int16_index_ & 1u) << 4, 16); }
ivec4 pm_unpack_shorts4(ivec2 words) { return ivec4(pm_unpack_shorts(words.x), pm_unpack_shorts(words.y)); }
ivec2 pm_pack_shorts4(ivec4 v) { return ivec2(pm_pack_shorts(v.xy), pm_pack_shorts(v.zw)); }
#define i16buffer_ld1(buf, i) pm_int16_lane(buf[pm_int16_word(uint(i))])
#define i16buffer_ld2(buf, i) ivec2(pm_int16_lane(buf[pm_int16_word(uint(i))]), pm_int16_lane(buf[pm_int16_word(pm_int16_index_ + 1u)]))
#define i16buffer_ld4(buf, i) aint16vec4(pm_unpack_shorts4(buf[i]))
#define i16buffer_sm4(buf, i) buf[i]
#define i16buffer_st1(buf, i, v) pm_store_bits_of_int(buf, i, 1, 16, v)
#define i16buffer_st2(buf, i, v) \
  do { \
    uint pm_i_ = uint(i); \
    ivec2 pm_pair_ = ivec2(v); \
    if ((pm_i_ & 1u) == 0u) { \
      buf[pm_i_ >> 1] = pm_pack_shorts(pm_pair_); \
    } else { \
      i16buffer_st1(buf, pm_i_, pm_pair_.x); \
      i16buffer_st1(buf, pm_i_ + 1u, pm_pair_.y); \
    } \
  } while (false)
#define i16buffer_st4(buf, i, v) buf[i] = pm_pack_shorts4(ivec4(v))
#define lint162aint16(v) aint16(v)
#define lint162aint16vec4(v) aint16vec4(pm_unpack_shorts4(v))
)";

std::string make_int16_types(std::string_view stored, std::string_view stored4, std::string_view shared, std::string_view shared4) {
  return make_define_directive("sint16", stored) + make_define_directive("sint16vec4", stored4) + make_define_directive("lint16", shared) +
         make_define_directive("lint16vec4", shared4);
}

// Returns the sint16 family. Without shaderInt16, 16-bit types are storage-only, so arithmetic uses int.
std::string make_int16_section(const ShaderOptions& options) {
  const bool any = options.int16_storage || options.int16_packed;
  std::string text(any && options.int16 ? kShortArithmetic : kIntArithmetic);
  if (options.int16_storage && options.int16)
    return text + make_int16_types("int16_t", "i16vec4", "int16_t", "i16vec4") + std::string(kInt16Elements);
  if (options.int16_storage) return text + make_int16_types("int16_t", "i16vec4", "int", "ivec4") + std::string(kInt16Elements);
  if (options.int16_packed) return text + std::string(kInt16Packed);
  return text + make_int16_types("int", "ivec4", "int", "ivec4") + std::string(kInt16Elements);
}

}  // namespace

std::string make_integer_section(const ShaderOptions& options) {
  return std::string(kIntPacking) + std::string(kFloatToInt8) + std::string(options.int8_storage ? kInt8Elements : kInt8Packed) +
         std::string(kInt8) + make_int16_section(options);
}

}  // namespace pumice

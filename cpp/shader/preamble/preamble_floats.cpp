// Float types of the preamble. In the plain modes (fp32, fp16, bf16) an `sfp` is one element; loads and stores are conversions. The packed
// modes keep two 16-bit elements per word and a vec4 in two words; the formats differ only in pm_bits2 and pm_unpack2.
//
// Loads, conversions and vector stores are expressions that evaluate each argument once. Scalar stores of the packed modes and per-lane
// copies are `do {} while (false)` statements, so that `if (c) buffer_st1(...); else ...` parses. Stores round to nearest even and keep
// NaN.
#include "shader/preamble/preamble_sections.h"

namespace pumice {
namespace {

bool has_fp16_uniform(const ShaderOptions& options) {
  return options.fp16_uniform && options.storage == StorageType::fp16 && has_fp16_arithmetic(options);
}
// Returns whether packed bfloat16 scalars are 16-bit elements, which requires 16-bit storage.
bool stores_bf16_in_16bit(const ShaderOptions& options) {
  return options.storage == StorageType::bf16_packed && options.storage_16bit && !targets_2024_extension(options);
}

// --- Bits of 16-bit floats

// Integer arithmetic, because the rounding of packHalf2x16 is implementation-defined.
constexpr std::string_view kBitConversions = R"(
uvec2 pm_fp16_bits2(vec2 v) {
  uvec2 bits = floatBitsToUint(v), size = bits & 0x7fffffffu;
  uvec2 normal = (size - 0x38000000u + 0xfffu + ((size >> 13) & 1u)) >> 13;
  uvec2 tiny = floatBitsToUint(uintBitsToFloat(min(size, uvec2(0x38800000u))) * 16777216.0 + 8388608.0) - 0x4b000000u;
  uvec2 huge = mix(uvec2(0x7c00u), uvec2(0x7e00u), greaterThan(size, uvec2(0x7f800000u)));
  uvec2 half_bits = mix(mix(normal, tiny, lessThan(size, uvec2(0x38800000u))), huge, greaterThanEqual(size, uvec2(0x477ff000u)));
  return half_bits | ((bits >> 16) & 0x8000u);
}
vec2 pm_fp16_unpack2(uint word) { return unpackHalf2x16(word); }
uvec2 pm_bf16_bits2(vec2 v) {
  uvec2 bits = floatBitsToUint(v);
  uvec2 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return mix(rounded, (bits >> 16) | 0x40u, greaterThan(bits & 0x7fffffffu, uvec2(0x7f800000u)));
}
vec2 pm_bf16_unpack2(uint word) { return uintBitsToFloat(uvec2(word << 16, word & 0xffff0000u)); }
#define unpackBFloat2x16(v) pm_bf16_unpack2(v)
#define packBFloat2x16(v) pm_bf16_pack2(vec2(v))
uint pm_bf16_pack2(vec2 v) { uvec2 bits = pm_bf16_bits2(v); return bits.x | (bits.y << 16); }
)";

constexpr std::string_view kPacking = R"(
uint pm_bits1(float v) { return pm_bits2(vec2(v, 0.0)).x; }
uint pm_pack2(vec2 v) { uvec2 bits = pm_bits2(v); return bits.x | (bits.y << 16); }
uvec2 pm_pack4(vec4 v) { return uvec2(pm_pack2(v.xy), pm_pack2(v.zw)); }
vec4 pm_unpack4(uvec2 words) { return vec4(pm_unpack2(words.x), pm_unpack2(words.y)); }
)";

// Packs fp16 without rounding.
constexpr std::string_view kFp16Packing = R"(
uint pm_bits1(float16_t v) { return packFloat2x16(f16vec2(v, float16_t(0.0))); }
uint pm_pack2(f16vec2 v) { return packFloat2x16(v); }
uvec2 pm_pack4(f16vec4 v) { return uvec2(packFloat2x16(v.xy), packFloat2x16(v.zw)); }
f16vec2 pm_half_from2(uint word) { return unpackFloat2x16(word); }
f16vec4 pm_half_from4(uvec2 words) { return f16vec4(unpackFloat2x16(words.x), unpackFloat2x16(words.y)); }
)";

// pm_round(v): a float that is exactly representable in the 16-bit type, so that the device's rounding mode does not matter.
constexpr std::string_view kRoundFunctions = R"(
float pm_round(float v) { return pm_unpack2(pm_bits1(v)).x; }
vec2 pm_round(vec2 v) { return pm_unpack2(pm_pack2(v)); }
vec4 pm_round(vec4 v) { return pm_unpack4(pm_pack4(v)); }
)";
// No explicit rounding: the execution mode sets round-to-nearest-even for conversions to 16 bits.
constexpr std::string_view kRoundToEven = R"(
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4467], 4462, 16);
#define pm_round(v) (v) /* spirv_execution_mode */
)";

// pm_half(v): converts any argument to fp16.
constexpr std::string_view kFp16Conversions = R"(
float16_t pm_half(float16_t v) { return v; }
f16vec2 pm_half(f16vec2 v) { return v; }
f16vec4 pm_half(f16vec4 v) { return v; }
f16mat4 pm_half(f16mat4 m) { return m; }
float16_t pm_half(float v) { return float16_t(pm_round(v)); }
f16vec2 pm_half(vec2 v) { return f16vec2(pm_round(v)); }
f16vec4 pm_half(vec4 v) { return f16vec4(pm_round(v)); }
f16mat4 pm_half(mat4 m) { return f16mat4(pm_half(m[0]), pm_half(m[1]), pm_half(m[2]), pm_half(m[3])); }
)";

// --- Arithmetic

constexpr std::string_view kFloatFunctions = R"(
#define afp float
#define afpvec2 vec2
#define afpvec4 vec4
#define afpmat4 mat4
#define pm_afp1(v) float(v)
#define pm_afp2(v) vec2(v)
#define pm_afp4(v) vec4(v)
#define pm_afp_mat(m) mat4(m)
#define pm_from2(word) pm_unpack2(word)
#define pm_from4(words) pm_unpack4(words)
)";

constexpr std::string_view kFp16Functions = R"(
#define afp float16_t
#define afpvec2 f16vec2
#define afpvec4 f16vec4
#define afpmat4 f16mat4
#define pm_afp1(v) pm_half(v)
#define pm_afp2(v) pm_half(v)
#define pm_afp4(v) pm_half(v)
#define pm_afp_mat(m) pm_half(m)
#define pm_from2(word) pm_half_from2(word)
#define pm_from4(words) pm_half_from4(words)
)";

// --- Storage

constexpr std::string_view kPlainStores = R"(
#define buffer_st1(buf, i, v) buf[i] = sfp(float(v))
#define buffer_st2(buf, i, v) buf[i] = sfpvec2(vec2(v))
#define buffer_st4(buf, i, v) buf[i] = sfpvec4(vec4(v))
)";
constexpr std::string_view kRoundingStores = R"(
#define buffer_st1(buf, i, v) buf[i] = sfp(pm_round(float(v)))
#define buffer_st2(buf, i, v) buf[i] = sfpvec2(pm_round(vec2(v)))
#define buffer_st4(buf, i, v) buf[i] = sfpvec4(pm_round(vec4(v)))
)";
constexpr std::string_view kFp16Stores = R"(
#define buffer_st1(buf, i, v) buf[i] = pm_half(v)
#define buffer_st2(buf, i, v) buf[i] = pm_half(v)
#define buffer_st4(buf, i, v) buf[i] = pm_half(v)
)";

constexpr std::string_view kPlainBuffers = R"(
#define PM_SFP_LANES 1
#define buffer_ld1(buf, i) pm_afp1(buf[i])
#define buffer_ld2(buf, i) pm_afp2(buf[i])
#define buffer_ld4(buf, i) pm_afp4(buf[i])
#define buffer_cp1(buf, i, sbuf, si) buf[i] = sbuf[si]
#define buffer_cp1to4(buf, i, sbuf, si4) \
  do { \
    uint pm_i_ = uint(i); \
    uvec4 pm_from_ = uvec4(si4); \
    buf[pm_i_].r = sbuf[pm_from_.r]; \
    buf[pm_i_].g = sbuf[pm_from_.g]; \
    buf[pm_i_].b = sbuf[pm_from_.b]; \
    buf[pm_i_].a = sbuf[pm_from_.a]; \
  } while (false)
#define buffer_cp4to1(buf, i4, sbuf, si) \
  do { \
    uvec4 pm_i_ = uvec4(i4); \
    uint pm_from_ = uint(si); \
    buf[pm_i_.r] = sbuf[pm_from_].r; \
    buf[pm_i_.g] = sbuf[pm_from_].g; \
    buf[pm_i_.b] = sbuf[pm_from_].b; \
    buf[pm_i_.a] = sbuf[pm_from_].a; \
  } while (false)
)";

constexpr std::string_view kPackedVectors = R"(
#define buffer_ld2(buf, i) pm_from2(buf[i])
#define buffer_ld4(buf, i) pm_from4(buf[i])
#define buffer_st2(buf, i, v) buf[i] = pm_pack2(pm_value2(v))
#define buffer_st4(buf, i, v) buf[i] = pm_pack4(pm_value4(v))
#define buffer_sm4(buf, i) buf[i]
)";

// Two elements share a word, so a scalar store must preserve the other lane even if another invocation writes it. pm_word(element) computes
// every word index, which lets bounds checks use the element index.
constexpr std::string_view kPackedScalars = R"(
#define PM_SFP_LANES 2
uint pm_shift_;
uint pm_word(const uint i) { pm_shift_ = (i & 1u) << 4; return i >> 1; }
uint pm_lane(uint word) { return (word >> pm_shift_) & 0xffffu; }
uint pm_with_lane(uint word, uint shift, uint bits) { return (word & ~(0xffffu << shift)) | (bits << shift); }
#define buffer_ld1(buf, i) pm_from2(pm_lane(buf[pm_word(uint(i))])).x
#define buffer_sm1(buf, i) pm_unpack2(pm_lane(buf[pm_word(uint(i))])).x
#define buffer_st1(buf, i, v) pm_store_lane(buf, i, pm_bits1(pm_value1(v)))
#define buffer_cp1(buf, i, sbuf, si) pm_store_lane(buf, i, pm_lane(sbuf[pm_word(uint(si))]))
#define pm_store_lane(buf, i, bits) \
  do { \
    uint pm_at_ = uint(i), pm_bits_ = bits, pm_by_ = (pm_at_ & 1u) << 4, pm_old_; \
    uint pm_seen_ = atomicCompSwap(buf[pm_word(pm_at_)], 0u, 0u); \
    do { \
      pm_old_ = pm_seen_; \
      pm_seen_ = atomicCompSwap(buf[pm_word(pm_at_)], pm_old_, pm_with_lane(pm_old_, pm_by_, pm_bits_)); \
    } while (pm_seen_ != pm_old_); \
  } while (false)
#define pm_load_lane(buf, i) pm_lane(buf[pm_word(i)])
)";

// bf16_packed with 16-bit storage: scalars are elements, vectors are words.
constexpr std::string_view k16bitScalars = R"(
#define PM_SFP_LANES 1
#define buffer_ld1(buf, i) pm_unpack2(uint(buf[i])).x
#define buffer_sm1(buf, i) pm_unpack2(uint(buf[i])).x
#define buffer_st1(buf, i, v) buf[i] = uint16_t(pm_bits1(float(v)))
#define buffer_cp1(buf, i, sbuf, si) buf[i] = sbuf[si]
#define pm_load_lane(buf, i) uint(buf[i])
#define pm_store_lane(buf, i, bits) buf[i] = uint16_t(bits)
)";

// Copies between scalars and packed vectors, using pm_load_lane and pm_store_lane on the scalar array.
constexpr std::string_view kPackedCopies = R"(
#define buffer_cp1to4(buf, i, sbuf, si4) \
  do { \
    uvec4 pm_from_ = uvec4(si4), pm_lanes_; \
    pm_lanes_.r = pm_load_lane(sbuf, pm_from_.r); \
    pm_lanes_.g = pm_load_lane(sbuf, pm_from_.g); \
    pm_lanes_.b = pm_load_lane(sbuf, pm_from_.b); \
    pm_lanes_.a = pm_load_lane(sbuf, pm_from_.a); \
    buf[i] = pm_lanes_.rb | (pm_lanes_.ga << 16); \
  } while (false)
#define buffer_cp4to1(buf, i4, sbuf, si) \
  do { \
    uvec4 pm_to_ = uvec4(i4); \
    uvec2 pm_words_ = sbuf[si]; \
    pm_store_lane(buf, pm_to_.r, pm_words_.x & 0xffffu); \
    pm_store_lane(buf, pm_to_.g, pm_words_.x >> 16); \
    pm_store_lane(buf, pm_to_.b, pm_words_.y & 0xffffu); \
    pm_store_lane(buf, pm_to_.a, pm_words_.y >> 16); \
  } while (false)
)";

// Packed modes of year_2024: scalars are 4-byte floats, vectors are words.
constexpr std::string_view kFloatScalars = R"(
#define PM_SFP_LANES 1
#define buffer_ld1(buf, i) pm_afp1(buf[i])
#define buffer_sm1(buf, i) buf[i]
#define buffer_st1(buf, i, v) buf[i] = float(v)
#define buffer_cp1(buf, i, sbuf, si) buf[i] = sbuf[si]
#define buffer_cp1to4(buf, i, sbuf, si4) \
  do { \
    uvec4 pm_from_ = uvec4(si4); \
    buf[i] = pm_pack4(vec4(sbuf[pm_from_.r], sbuf[pm_from_.g], sbuf[pm_from_.b], sbuf[pm_from_.a])); \
  } while (false)
#define buffer_cp4to1(buf, i4, sbuf, si) \
  do { \
    uvec4 pm_to_ = uvec4(i4); \
    vec4 pm_lanes_ = pm_unpack4(sbuf[si]); \
    buf[pm_to_.r] = pm_lanes_.r; \
    buf[pm_to_.g] = pm_lanes_.g; \
    buf[pm_to_.b] = pm_lanes_.b; \
    buf[pm_to_.a] = pm_lanes_.a; \
  } while (false)
)";

constexpr std::string_view kRawCopies = R"(
#define buffer_cp2(buf, i, sbuf, si) buf[i] = sbuf[si]
#define buffer_cp4(buf, i, sbuf, si) buf[i] = sbuf[si]
)";

// Four columns of words, because 16-bit floats have no matrix types without fp16 arithmetic. Same memory layout as an fp16 matrix.
constexpr std::string_view kWordMatrix = R"(
#define sfpmat4 uvec2[4]
#define sfp2afpmat4(m) pm_from_mat(m)
#define afp2sfpmat4(m) pm_pack_mat(m)
afpmat4 pm_from_mat(uvec2[4] m) { return afpmat4(pm_from4(m[0]), pm_from4(m[1]), pm_from4(m[2]), pm_from4(m[3])); }
uvec2[4] pm_pack_mat(mat4 m) { return uvec2[4](pm_pack4(m[0]), pm_pack4(m[1]), pm_pack4(m[2]), pm_pack4(m[3])); }
)";
constexpr std::string_view kFp16WordMatrix = R"(
uvec2[4] pm_pack_mat(f16mat4 m) { return uvec2[4](pm_pack4(m[0]), pm_pack4(m[1]), pm_pack4(m[2]), pm_pack4(m[3])); }
)";

std::string make_matrix_types(const ShaderOptions& options) {
  if (options.storage == StorageType::fp32)
    return make_define_directive("sfpmat4", "mat4") + make_define_directive("sfp2afpmat4(m)", "pm_afp_mat(m)") +
           make_define_directive("afp2sfpmat4(m)", "mat4(m)");
  if (options.storage == StorageType::fp16 && has_fp16_arithmetic(options))
    return make_define_directive("sfpmat4", "f16mat4") + make_define_directive("sfp2afpmat4(m)", "pm_half(m)") +
           make_define_directive("afp2sfpmat4(m)", "pm_half(m)");
  return std::string(kWordMatrix) + std::string(has_fp16_arithmetic(options) ? kFp16WordMatrix : "");
}

std::string make_storage_types(std::string_view sfp, std::string_view sfpvec2, std::string_view sfpvec4) {
  return make_define_directive("sfp", sfp) + make_define_directive("sfpvec2", sfpvec2) + make_define_directive("sfpvec4", sfpvec4);
}

// Returns the conversions before a packed store: none with fp16 arithmetic, otherwise to float.
std::string make_packed_store_conversions(const ShaderOptions& options) {
  if (has_fp16_arithmetic(options))
    return make_define_directive("pm_value1(v)", "(v)") + make_define_directive("pm_value2(v)", "(v)") +
           make_define_directive("pm_value4(v)", "(v)");
  return make_define_directive("pm_value1(v)", "float(v)") + make_define_directive("pm_value2(v)", "vec2(v)") +
         make_define_directive("pm_value4(v)", "vec4(v)");
}

std::string make_packed_storage(const ShaderOptions& options) {
  const auto scalars = targets_2024_extension(options) ? kFloatScalars : stores_bf16_in_16bit(options) ? k16bitScalars : kPackedScalars;
  const auto sfp = targets_2024_extension(options) ? "float" : stores_bf16_in_16bit(options) ? "uint16_t" : "uint";
  const std::string copies(targets_2024_extension(options) ? "" : kPackedCopies);
  return make_storage_types(sfp, "uint", "uvec2") + make_packed_store_conversions(options) + std::string(kPackedVectors) +
         std::string(scalars) + copies;
}

std::string make_plain_storage(const ShaderOptions& options) {
  std::string text(kPlainBuffers);
  switch (options.storage) {
    case StorageType::fp32:
      return text + make_storage_types("float", "vec2", "vec4") + std::string(kPlainStores);
    case StorageType::bf16:
      return text + make_storage_types("bfloat16_t", "bf16vec2", "bf16vec4") + std::string(kRoundingStores);
    default:
      return text + make_storage_types("float16_t", "f16vec2", "f16vec4") +
             std::string(has_fp16_arithmetic(options) ? kFp16Stores : kRoundingStores);
  }
}

// --- Shared memory

// Types in shared memory (lfp), and conversions from storage (sm) and to and from the arithmetic type. `$` is the operand.
struct SharedMemoryTypes {
  std::string_view lfp, lfpvec4, sm1, sm4, to_afp, to_afpvec4, from_afp, from_afpvec4;
};

SharedMemoryTypes choose_shared_memory_types(const ShaderOptions& options) {
  if (options.storage == StorageType::fp32) return {"float", "vec4", "$", "$", "pm_afp1($)", "pm_afp4($)", "float($)", "vec4($)"};
  if (options.storage == StorageType::bf16)
    return {"bfloat16_t", "bf16vec4", "$", "$", "float($)", "vec4($)", "bfloat16_t(pm_round(float($)))", "bf16vec4(pm_round(vec4($)))"};
  if (is_packed(options)) return {"float", "uvec2", "$", "$", "pm_afp1($)", "pm_from4($)", "float($)", "pm_pack4(pm_value4($))"};
  if (has_fp16_uniform(options)) return {"float16_t", "f16vec4", "$", "$", "$", "$", "pm_half($)", "pm_half($)"};
  if (has_fp16_arithmetic(options) && options.int64)
    return {"float",    "uint64_t",           "float($)", "pack64(pm_pack4($))", "pm_half($)", "pm_half_from4(unpack32($))",
            "float($)", "pack64(pm_pack4($))"};
  if (has_fp16_arithmetic(options))
    return {"float", "uvec2", "float($)", "pm_pack4($)", "pm_half($)", "pm_half_from4($)", "float($)", "pm_pack4($)"};
  return {"float", "uvec2", "float($)", "pm_pack4(vec4($))", "float($)", "pm_unpack4($)", "float($)", "pm_pack4(vec4($))"};
}

std::string make_define_from_pattern(std::string_view name, std::string_view pattern, std::string_view value) {
  std::string text(pattern);
  return make_define_directive(name, text.replace(text.find('$'), 1, value));
}

std::string make_shared_memory_macros(const ShaderOptions& options) {
  const SharedMemoryTypes types = choose_shared_memory_types(options);
  std::string text =
      make_define_directive("lfp", types.lfp) + make_define_directive("lfpvec4", types.lfpvec4) +
      make_define_from_pattern("lfp2afp(v)", types.to_afp, "(v)") + make_define_from_pattern("lfp2afpvec4(v)", types.to_afpvec4, "(v)") +
      make_define_from_pattern("afp2lfp(v)", types.from_afp, "(v)") + make_define_from_pattern("afp2lfpvec4(v)", types.from_afpvec4, "(v)");
  if (!is_packed(options))
    text += make_define_from_pattern("buffer_sm1(buf, i)", types.sm1, "buf[i]") +
            make_define_from_pattern("buffer_sm4(buf, i)", types.sm4, "buf[i]");
  if (targets_2024_extension(options))
    text += make_define_from_pattern("sfp2lfp(v)", types.sm1, "(v)") + make_define_from_pattern("sfp2lfpvec4(v)", types.sm4, "(v)");
  return text;
}

}  // namespace

std::string make_float_bits_section(const ShaderOptions& options) {
  const std::string bits(is_bf16(options) ? "pm_bf16_" : "pm_fp16_");
  std::string text(kBitConversions);
  text += make_define_directive("pm_bits2", bits + "bits2") + make_define_directive("pm_unpack2", bits + "unpack2");
  text += kPacking;
  text += options.fp16_rounds_to_even && !is_bf16(options) ? kRoundToEven : kRoundFunctions;
  if (has_fp16_arithmetic(options)) text += std::string(kFp16Packing) + std::string(kFp16Conversions);
  return text + std::string(has_fp16_arithmetic(options) ? kFp16Functions : kFloatFunctions);
}

std::string make_float_section(const ShaderOptions& options) {
  return (is_packed(options) ? make_packed_storage(options) : make_plain_storage(options)) + std::string(kRawCopies) +
         make_matrix_types(options) + make_shared_memory_macros(options);
}

}  // namespace pumice

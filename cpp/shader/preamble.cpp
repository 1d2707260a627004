// The GLSL extension: one set of names whose meaning follows the storage and arithmetic types.
//
// Plain modes (fp32, fp16, bf16) have one element in an `sfp`: loads and stores are conversions. Packed modes keep two 16-bit
// elements in a word, and a vec4 in two: the words of both packed formats differ only in pm_pack2 and pm_unpack2. Loads,
// conversions and vector stores are expressions that evaluate each argument once; scalar stores of the packed modes and
// lane-wise copies are `do {} while (false)` statements, so that `if (c) buffer_st1(...); else ...` parses.
// Stores round to nearest even and keep NaN.
#include "core/error.h"
#include "shader/shader_options.h"

namespace pumice {
namespace {

bool is_packed(const ShaderOptions& options) {
  return options.storage == Storage::fp16_packed || options.storage == Storage::bf16_packed;
}
bool is_bf16(const ShaderOptions& options) {
  return options.storage == Storage::bf16 || options.storage == Storage::bf16_packed;
}
// bfloat16 has no arithmetic of its own.
bool half_arithmetic(const ShaderOptions& options) {
  return options.fp16_arithmetic && !is_bf16(options);
}
bool half_uniform(const ShaderOptions& options) {
  return options.fp16_uniform && options.storage == Storage::fp16 && half_arithmetic(options);
}
// An element of its own 16 bits holds a bfloat16's bits, where the device can address them.
bool bf16_in_16bit(const ShaderOptions& options) {
  return options.storage == Storage::bf16_packed && options.storage_16bit;
}

std::string define(std::string_view name, std::string_view text) {
  return "#define " + std::string(name) + " " + std::string(text) + "\n";
}

std::string extensions(const ShaderOptions& options) {
  std::string text;
  const auto need = [&](bool needed, std::string_view extension) {
    if (needed) text += "#extension " + std::string(extension) + " : require\n";
  };
  need(true, "GL_GOOGLE_include_directive");
  need(options.int64, "GL_EXT_shader_explicit_arithmetic_types_int64");
  need(options.int16, "GL_EXT_shader_explicit_arithmetic_types_int16");
  need(options.int8, "GL_EXT_shader_explicit_arithmetic_types_int8");
  need(options.int8, "GL_EXT_shader_8bit_storage");
  need(options.storage_16bit || options.storage == Storage::fp16 || options.storage == Storage::bf16, "GL_EXT_shader_16bit_storage");
  need(options.fp16_arithmetic, "GL_EXT_shader_explicit_arithmetic_types_float16");
  for (const auto& extension : optional_extensions(options)) need(true, extension);
  return text;
}

std::string arithmetic_types(const ShaderOptions& options) {
  if (!half_arithmetic(options))
    return define("afp", "float") + define("afpvec2", "vec2") + define("afpvec4", "vec4") + define("afpmat4", "mat4");
  return define("afp", "float16_t") + define("afpvec2", "f16vec2") + define("afpvec4", "f16vec4") + define("afpmat4", "f16mat4");
}

std::string feature_macros(const ShaderOptions& options) {
  std::string text = define("ncnn_glsl_version", "1");
  switch (options.storage) {
    case Storage::fp32:
      break;
    case Storage::fp16:
      text += define("NCNN_fp16_storage", "1");
      break;
    case Storage::fp16_packed:
      text += define("NCNN_fp16_packed", "1");
      break;
    case Storage::bf16:
      text += define("NCNN_bf16_storage", "1");
      break;
    case Storage::bf16_packed:
      text += define("NCNN_bf16_packed", "1");
      break;
  }
  if (options.fp16_arithmetic) text += define("NCNN_fp16_arithmetic", "1");
  if (options.fp16_uniform) text += define("NCNN_fp16_uniform", "1");
  for (const auto& [name, value] : options.profile) text += define(name, value);
  return text;
}

// --- Bits of 16-bit floats

// Integer arithmetic throughout: how packHalf2x16 rounds is up to the device (lavapipe of Mesa 22.3 truncates).
constexpr std::string_view kHalfBits = R"(
uvec2 pm_bits2(vec2 v) {
  uvec2 bits = floatBitsToUint(v), size = bits & 0x7fffffffu;
  uvec2 normal = (size - 0x38000000u + 0xfffu + ((size >> 13) & 1u)) >> 13;
  uvec2 tiny = uvec2(roundEven(uintBitsToFloat(min(size, uvec2(0x38800000u))) * 16777216.0));
  uvec2 huge = mix(uvec2(0x7c00u), uvec2(0x7e00u), greaterThan(size, uvec2(0x7f800000u)));
  uvec2 half_bits = mix(mix(normal, tiny, lessThan(size, uvec2(0x38800000u))), huge, greaterThanEqual(size, uvec2(0x477ff000u)));
  return half_bits | ((bits >> 16) & 0x8000u);
}
vec2 pm_unpack2(uint word) { return unpackHalf2x16(word); }
)";

constexpr std::string_view kBfloat16Bits = R"(
uvec2 pm_bits2(vec2 v) {
  uvec2 bits = floatBitsToUint(v);
  uvec2 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return mix(rounded, (bits >> 16) | 0x40u, greaterThan(bits & 0x7fffffffu, uvec2(0x7f800000u)));
}
vec2 pm_unpack2(uint word) { return uintBitsToFloat(uvec2(word << 16, word & 0xffff0000u)); }
)";

constexpr std::string_view kWords = R"(
uint pm_pack2(vec2 v) { uvec2 bits = pm_bits2(v); return bits.x | (bits.y << 16); }
uvec2 pm_pack4(vec4 v) { return uvec2(pm_pack2(v.xy), pm_pack2(v.zw)); }
vec4 pm_unpack4(uvec2 words) { return vec4(pm_unpack2(words.x), pm_unpack2(words.y)); }
)";

// Half vectors are packed as they are, nothing is rounded.
constexpr std::string_view kHalfWords = R"(
uint pm_pack2(f16vec2 v) { return packFloat2x16(v); }
uvec2 pm_pack4(f16vec4 v) { return uvec2(packFloat2x16(v.xy), packFloat2x16(v.zw)); }
)";

// --- Storage

constexpr std::string_view kPlainBuffers = R"(
#define PM_SFP_LANES 1
#define buffer_ld1(buf, i) afp(buf[i])
#define buffer_ld2(buf, i) afpvec2(buf[i])
#define buffer_ld4(buf, i) afpvec4(buf[i])
#define buffer_st1(buf, i, v) buf[i] = sfp(afp(v))
#define buffer_st2(buf, i, v) buf[i] = sfpvec2(afpvec2(v))
#define buffer_st4(buf, i, v) buf[i] = sfpvec4(afpvec4(v))
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
#define buffer_ld2(buf, i) afpvec2(pm_unpack2(buf[i]))
#define buffer_ld4(buf, i) afpvec4(pm_unpack4(buf[i]))
#define buffer_st2(buf, i, v) buf[i] = pm_pack2(afpvec2(v))
#define buffer_st4(buf, i, v) buf[i] = pm_pack4(afpvec4(v))
#define buffer_sm4(buf, i) buf[i]
)";

// Two elements share a word, so that a scalar store must leave the other lane as it is, whoever writes that.
constexpr std::string_view kPackedScalars = R"(
#define PM_SFP_LANES 2
uint pm_shift_;
uint pm_word(uint i) { pm_shift_ = (i & 1u) << 4; return i >> 1; }
uint pm_lane(uint word) { return (word >> pm_shift_) & 0xffffu; }
uint pm_with_lane(uint word, uint shift, uint bits) { return (word & ~(0xffffu << shift)) | (bits << shift); }
#define buffer_ld1(buf, i) afp(pm_unpack2(pm_lane(buf[pm_word(uint(i))])).x)
#define buffer_sm1(buf, i) pm_unpack2(pm_lane(buf[pm_word(uint(i))])).x
#define buffer_st1(buf, i, v) pm_store_lane(buf, i, pm_bits2(vec2(afp(v), 0.0)).x)
#define buffer_cp1(buf, i, sbuf, si) pm_store_lane(buf, i, pm_lane(sbuf[pm_word(uint(si))]))
#define pm_store_lane(buf, i, bits) \
  do { \
    uint pm_at_ = uint(i), pm_bits_ = bits, pm_by_ = (pm_at_ & 1u) << 4, pm_old_; \
    pm_at_ >>= 1; \
    uint pm_seen_ = atomicCompSwap(buf[pm_at_], 0u, 0u); \
    do { \
      pm_old_ = pm_seen_; \
      pm_seen_ = atomicCompSwap(buf[pm_at_], pm_old_, pm_with_lane(pm_old_, pm_by_, pm_bits_)); \
    } while (pm_seen_ != pm_old_); \
  } while (false)
#define buffer_cp1to4(buf, i, sbuf, si4) \
  do { \
    uvec4 pm_from_ = uvec4(si4), pm_lanes_; \
    pm_lanes_.r = pm_lane(sbuf[pm_word(pm_from_.r)]); \
    pm_lanes_.g = pm_lane(sbuf[pm_word(pm_from_.g)]); \
    pm_lanes_.b = pm_lane(sbuf[pm_word(pm_from_.b)]); \
    pm_lanes_.a = pm_lane(sbuf[pm_word(pm_from_.a)]); \
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

// bf16_packed where 16 bits can be addressed: scalars are elements, vectors stay words.
constexpr std::string_view k16bitScalars = R"(
#define PM_SFP_LANES 1
#define buffer_ld1(buf, i) afp(pm_unpack2(uint(buf[i])).x)
#define buffer_sm1(buf, i) pm_unpack2(uint(buf[i])).x
#define buffer_st1(buf, i, v) buf[i] = uint16_t(pm_bits2(vec2(afp(v), 0.0)).x)
#define buffer_cp1(buf, i, sbuf, si) buf[i] = sbuf[si]
#define buffer_cp1to4(buf, i, sbuf, si4) \
  do { \
    uvec4 pm_from_ = uvec4(si4); \
    uvec4 pm_lanes_ = uvec4(uint(sbuf[pm_from_.r]), uint(sbuf[pm_from_.g]), uint(sbuf[pm_from_.b]), uint(sbuf[pm_from_.a])); \
    buf[i] = pm_lanes_.rb | (pm_lanes_.ga << 16); \
  } while (false)
#define buffer_cp4to1(buf, i4, sbuf, si) \
  do { \
    uvec4 pm_to_ = uvec4(i4); \
    uvec2 pm_words_ = sbuf[si]; \
    buf[pm_to_.r] = uint16_t(pm_words_.x & 0xffffu); \
    buf[pm_to_.g] = uint16_t(pm_words_.x >> 16); \
    buf[pm_to_.b] = uint16_t(pm_words_.y & 0xffffu); \
    buf[pm_to_.a] = uint16_t(pm_words_.y >> 16); \
  } while (false)
)";

constexpr std::string_view kRawCopies = R"(
#define buffer_cp2(buf, i, sbuf, si) buf[i] = sbuf[si]
#define buffer_cp4(buf, i, sbuf, si) buf[i] = sbuf[si]
)";

std::string plain_types(std::string_view scalar, std::string_view prefix) {
  const std::string vector(prefix);
  return define("sfp", scalar) + define("sfpvec2", vector + "vec2") + define("sfpvec4", vector + "vec4");
}

std::string packed_types(const ShaderOptions& options) {
  return define("sfp", bf16_in_16bit(options) ? "uint16_t" : "uint") + define("sfpvec2", "uint") + define("sfpvec4", "uvec2");
}

std::string matrix_types(const ShaderOptions& options) {
  if (options.storage == Storage::fp32)
    return define("sfpmat4", "mat4") + define("sfp2afpmat4(m)", "afpmat4(m)") + define("afp2sfpmat4(m)", "mat4(m)");
  if (options.storage == Storage::fp16 && half_arithmetic(options))
    return define("sfpmat4", "f16mat4") + define("sfp2afpmat4(m)", "(m)") + define("afp2sfpmat4(m)", "(m)");
  return {};  // as in the original: shaders that use sfpmat4 guard it
}

std::string storage_text(const ShaderOptions& options) {
  std::string text = matrix_types(options);
  switch (options.storage) {
    case Storage::fp32:
      return text + plain_types("float", "") + std::string(kPlainBuffers);
    case Storage::fp16:
      return text + plain_types("float16_t", "f16") + std::string(kPlainBuffers);
    case Storage::bf16:
      return text + plain_types("bfloat16_t", "bf16") + std::string(kPlainBuffers);
    case Storage::fp16_packed:
      return text + packed_types(options) + std::string(kPackedVectors) + std::string(kPackedScalars);
    case Storage::bf16_packed:
      break;
  }
  return text + packed_types(options) + std::string(kPackedVectors) + std::string(bf16_in_16bit(options) ? k16bitScalars : kPackedScalars);
}

std::string bit_functions(const ShaderOptions& options) {
  std::string text(is_bf16(options) ? kBfloat16Bits : kHalfBits);
  text += kWords;
  if (half_arithmetic(options)) text += kHalfWords;
  if (is_bf16(options)) text += define("packBFloat2x16(v)", "pm_pack2(v)") + define("unpackBFloat2x16(v)", "pm_unpack2(v)");
  return text;
}

// --- Shared memory

// Types of shared memory, and the conversions to them from storage (sm) and from and to arithmetic.
struct LocalMemory {
  std::string_view lfp, lfpvec4, sm1, sm4, to_afp, to_afpvec4, from_afp, from_afpvec4;
};

LocalMemory local_memory(const ShaderOptions& options) {
  if (options.storage == Storage::fp32) return {"float", "vec4", "buf[i]", "buf[i]", "afp(v)", "afpvec4(v)", "float(v)", "vec4(v)"};
  if (options.storage == Storage::bf16)
    return {"bfloat16_t", "bf16vec4", "buf[i]", "buf[i]", "float(v)", "vec4(v)", "bfloat16_t(v)", "bf16vec4(v)"};
  if (is_packed(options)) return {"float", "uvec2", {}, {}, "afp(v)", "afpvec4(pm_unpack4(v))", "float(v)", "pm_pack4(afpvec4(v))"};
  if (half_uniform(options)) return {"float16_t", "f16vec4", "buf[i]", "buf[i]", "(v)", "(v)", "(v)", "(v)"};
  if (half_arithmetic(options) && options.int64)
    return {"float",         "uint64_t",
            "float(buf[i])", "pack64(pm_pack4(buf[i]))",
            "afp(v)",        "f16vec4(pm_unpack4(unpack32(v)))",
            "float(v)",      "pack64(pm_pack4(afpvec4(v)))"};
  if (half_arithmetic(options))
    return {"float", "uvec2", "float(buf[i])", "pm_pack4(buf[i])", "afp(v)", "f16vec4(pm_unpack4(v))", "float(v)", "pm_pack4(afpvec4(v))"};
  return {"float", "uvec2", "float(buf[i])", "pm_pack4(vec4(buf[i]))", "(v)", "pm_unpack4(v)", "(v)", "pm_pack4(v)"};
}

std::string local_text(const ShaderOptions& options) {
  const LocalMemory local = local_memory(options);
  std::string text = define("lfp", local.lfp) + define("lfpvec4", local.lfpvec4);
  if (!local.sm1.empty()) text += define("buffer_sm1(buf, i)", local.sm1) + define("buffer_sm4(buf, i)", local.sm4);
  return text + define("lfp2afp(v)", local.to_afp) + define("lfp2afpvec4(v)", local.to_afpvec4) + define("afp2lfp(v)", local.from_afp) +
         define("afp2lfpvec4(v)", local.from_afpvec4);
}

}  // namespace

std::vector<std::string> optional_extensions(const ShaderOptions& options) {
  if (options.storage == Storage::bf16) return {"GL_EXT_bfloat16"};
  return {};
}

std::string preamble(const ShaderOptions& options) {
  return extensions(options) + feature_macros(options) + arithmetic_types(options) + storage_text(options) + std::string(kRawCopies) +
         bit_functions(options) + local_text(options) + define("psc(x)", "((x) == 0 ? p.x : (x))");
}

}  // namespace pumice

// The text of the GLSL extension. Macro arguments are parenthesised or evaluated once; every statement form may stand alone after
// an if; conversions to 16 bits round to nearest even, whatever the driver's own do.
#include "core/error.h"
#include "shader/shader_options.h"

namespace pumice {
namespace {

constexpr std::string_view kNames[] = {"fp32", "fp16", "fp16_packed", "bf16", "bf16_packed"};

std::string extension(std::string_view name) { return "#extension " + std::string(name) + " : enable\n"; }

std::string extensions(const ShaderOptions& options) {
  std::string text = extension("GL_GOOGLE_include_directive");
  if (options.int64) text += extension("GL_EXT_shader_explicit_arithmetic_types_int64");
  if (options.int16) text += extension("GL_EXT_shader_explicit_arithmetic_types_int16");
  if (options.storage_16bit) text += extension("GL_EXT_shader_16bit_storage");
  if (options.int8) text += extension("GL_EXT_shader_8bit_storage") + extension("GL_EXT_shader_explicit_arithmetic_types_int8");
  return text;
}

// Names that mean the same in every mode: arithmetic is fp32.
constexpr std::string_view kCommon = R"(
#define ncnn_glsl_version 1
#define afp float
#define afpvec2 vec2
#define afpvec4 vec4
#define afpmat4 mat4
#define lfp float
#define lfp2afp(v) (v)
#define afp2lfp(v) (v)
#define psc(x) ((x) == 0 ? p.x : (x))
)";

// A half's value of a float, so that the conversion that follows is exact.
constexpr std::string_view kRoundHalf = R"(
float pm_round_half(float v) {
  uint bits = floatBitsToUint(v), magnitude = bits & 0x7fffffffu, sign = bits & 0x80000000u;
  precise float shifted = uintBitsToFloat(magnitude) + 0.5;
  precise float tiny = shifted - 0.5;
  uint rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u) & 0xffffe000u;
  uint result = magnitude > 0x7f800000u ? magnitude : magnitude >= 0x477ff000u ? 0x7f800000u : magnitude < 0x38800000u ? floatBitsToUint(tiny) : rounded;
  return uintBitsToFloat(sign | result);
}
vec2 pm_round_half(vec2 v) { return vec2(pm_round_half(v.x), pm_round_half(v.y)); }
vec4 pm_round_half(vec4 v) { return vec4(pm_round_half(v.xy), pm_round_half(v.zw)); }
)";

constexpr std::string_view kFp32 = R"(
#define PM_SFP_LANES 1
#define sfp float
#define sfpvec2 vec2
#define sfpvec4 vec4
#define sfpmat4 mat4
#define lfpvec4 vec4
#define buffer_ld1(b, i) (b)[i]
#define buffer_ld2(b, i) (b)[i]
#define buffer_ld4(b, i) (b)[i]
#define buffer_st1(b, i, v) b[i] = (v)
#define buffer_st2(b, i, v) b[i] = (v)
#define buffer_st4(b, i, v) b[i] = (v)
#define buffer_sm1(b, i) b[i]
#define buffer_sm4(b, i) b[i]
#define lfp2afpvec4(v) (v)
#define afp2lfpvec4(v) (v)
#define sfp2afpmat4(v) (v)
#define afp2sfpmat4(v) (v)
#define buffer_cp1to4(b, i, s, i4) b[i] = vec4(s[(i4).r], s[(i4).g], s[(i4).b], s[(i4).a])
#define buffer_cp4to1(b, i4, s, i) do { vec4 pm_v_ = s[i]; b[(i4).r] = pm_v_.r; b[(i4).g] = pm_v_.g; b[(i4).b] = pm_v_.b; b[(i4).a] = pm_v_.a; } while (false)
)";

constexpr std::string_view kFp16 = R"(
#define NCNN_fp16_storage 1
#define PM_SFP_LANES 1
#define sfp float16_t
#define sfpvec2 f16vec2
#define sfpvec4 f16vec4
#define lfpvec4 uvec2
#define buffer_ld1(b, i) float(b[i])
#define buffer_ld2(b, i) vec2(b[i])
#define buffer_ld4(b, i) vec4(b[i])
#define buffer_st1(b, i, v) b[i] = float16_t(pm_round_half(float(v)))
#define buffer_st2(b, i, v) b[i] = f16vec2(pm_round_half(vec2(v)))
#define buffer_st4(b, i, v) b[i] = f16vec4(pm_round_half(vec4(v)))
#define buffer_sm1(b, i) float(b[i])
#define buffer_sm4(b, i) uvec2(packHalf2x16(vec2(b[i].rg)), packHalf2x16(vec2(b[i].ba)))
#define lfp2afpvec4(v) pm_unpack4(v)
#define afp2lfpvec4(v) pm_pack4(v)
#define buffer_cp1to4(b, i, s, i4) do { b[i].r = s[(i4).r]; b[i].g = s[(i4).g]; b[i].b = s[(i4).b]; b[i].a = s[(i4).a]; } while (false)
#define buffer_cp4to1(b, i4, s, i) do { b[(i4).r] = s[i].r; b[(i4).g] = s[i].g; b[(i4).b] = s[i].b; b[(i4).a] = s[i].a; } while (false)
)";

constexpr std::string_view kHalfWords = R"(
vec2 pm_unpack2(uint word) { return unpackHalf2x16(word); }
uint pm_pack2(vec2 v) { return packHalf2x16(pm_round_half(v)); }
)";

constexpr std::string_view kBfloatWords = R"(
#define unpackBFloat2x16(word) pm_unpack2(word)
#define packBFloat2x16(v) pm_pack2(v)
uint pm_bfloat_bits(float v) {
  uint bits = floatBitsToUint(v);
  return (bits & 0x7fffffffu) > 0x7f800000u ? bits >> 16 | 0x40u : bits + 0x7fffu + (bits >> 16 & 1u) >> 16;
}
vec2 pm_unpack2(uint word) { return vec2(uintBitsToFloat(word << 16), uintBitsToFloat(word & 0xffff0000u)); }
uint pm_pack2(vec2 v) { return pm_bfloat_bits(v.x) | pm_bfloat_bits(v.y) << 16; }
)";

constexpr std::string_view kQuads = R"(
vec4 pm_unpack4(uvec2 words) { return vec4(pm_unpack2(words.x), pm_unpack2(words.y)); }
uvec2 pm_pack4(vec4 v) { return uvec2(pm_pack2(v.xy), pm_pack2(v.zw)); }
)";

// Two elements a word: scalar stores put their lane in by an atomic loop, lossless for the neighbour.
constexpr std::string_view kPacked = R"(
#define PM_SFP_LANES 2
#define sfp uint
#define sfpvec2 uint
#define sfpvec4 uvec2
#define lfpvec4 uvec2
float pm_lane(uint word, uint i) { vec2 v = pm_unpack2(word); return (i & 1u) == 0u ? v.x : v.y; }
#define buffer_ld1(b, i) pm_lane(b[uint(i) >> 1], uint(i))
#define buffer_ld2(b, i) pm_unpack2(b[i])
#define buffer_ld4(b, i) pm_unpack4(b[i])
#define buffer_st1(b, i, v) do { \
    uint pm_at_ = uint(i), pm_shift_ = (pm_at_ & 1u) * 16u, pm_bits_ = pm_pack2(vec2(float(v), 0.0)) << pm_shift_; \
    uint pm_seen_ = atomicCompSwap(b[pm_at_ >> 1], 0u, 0u), pm_old_; \
    do { pm_old_ = pm_seen_; pm_seen_ = atomicCompSwap(b[pm_at_ >> 1], pm_old_, (pm_old_ & ~(0xffffu << pm_shift_)) | pm_bits_); } while (pm_seen_ != pm_old_); \
  } while (false)
#define buffer_st2(b, i, v) b[i] = pm_pack2(v)
#define buffer_st4(b, i, v) b[i] = pm_pack4(v)
#define buffer_sm1(b, i) buffer_ld1(b, i)
#define buffer_sm4(b, i) b[i]
#define lfp2afpvec4(v) pm_unpack4(v)
#define afp2lfpvec4(v) pm_pack4(v)
#define buffer_cp1to4(b, i, s, i4) b[i] = pm_pack4(vec4(buffer_ld1(s, (i4).r), buffer_ld1(s, (i4).g), buffer_ld1(s, (i4).b), buffer_ld1(s, (i4).a)))
#define buffer_cp4to1(b, i4, s, i) do { vec4 pm_v_ = pm_unpack4(s[i]); buffer_st1(b, (i4).r, pm_v_.r); buffer_st1(b, (i4).g, pm_v_.g); buffer_st1(b, (i4).b, pm_v_.b); buffer_st1(b, (i4).a, pm_v_.a); } while (false)
#define buffer_cp1(b, i, s, j) do { float pm_copied_ = buffer_ld1(s, j); buffer_st1(b, i, pm_copied_); } while (false)
)";

constexpr std::string_view kCopies = R"(
#define buffer_cp2(b, i, s, j) b[i] = s[j]
#define buffer_cp4(b, i, s, j) b[i] = s[j]
)";

std::string text_of(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const auto part : parts) text += part;
  return text;
}

std::string storage_text(const ShaderOptions& options) {
  switch (options.storage) {
    case Storage::fp32: return text_of({kFp32, "#define buffer_cp1(b, i, s, j) b[i] = s[j]\n"});
    case Storage::fp16:
      if (!options.storage_16bit) throw UnsupportedError("storage fp16 needs 16-bit storage (feature storageBuffer16BitAccess); fp16_packed does not");
      return text_of({kRoundHalf, kHalfWords, kQuads, kFp16, "#define buffer_cp1(b, i, s, j) b[i] = s[j]\n"});
    case Storage::fp16_packed: return text_of({"#define NCNN_fp16_packed 1\n", kRoundHalf, kHalfWords, kQuads, kPacked});
    case Storage::bf16_packed: return text_of({"#define NCNN_bf16_packed 1\n", kBfloatWords, kQuads, kPacked});
    default: throw UnsupportedError("storage bf16 needs GL_EXT_bfloat16, which this glslang lacks; bf16_packed does not");
  }
}

}  // namespace

std::string_view name(Storage storage) { return kNames[static_cast<size_t>(storage)]; }

Storage storage_from_name(std::string_view wanted) {
  for (size_t i = 0; i < std::size(kNames); ++i)
    if (kNames[i] == wanted) return static_cast<Storage>(i);
  throw UnsupportedError("storage '" + std::string(wanted) + "'; there are fp32, fp16, fp16_packed, bf16 and bf16_packed");
}

std::string preamble(const ShaderOptions& options) {
  if (options.fp16_arithmetic) throw UnsupportedError("fp16 arithmetic; shaders compute in fp32 in every storage mode");
  std::string text = extensions(options);
  for (const auto& [macro, value] : options.profile) text += "#define " + macro + " " + value + "\n";
  return text + std::string(kCommon) + storage_text(options) + std::string(kCopies);
}

}  // namespace pumice

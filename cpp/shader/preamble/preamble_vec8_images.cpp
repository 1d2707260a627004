// Preamble sections for year_2024 only: vec8 and images.
#include "shader/preamble/preamble_sections.h"

namespace pumice {
namespace {

// --- vec8 as two matrix columns

constexpr std::string_view kVec8Arithmetic = R"(
#define afpvec8 mat2x4
#define pm_afp8(v) mat2x4(v)
)";
constexpr std::string_view kVec8Fp16Arithmetic = R"(
#define afpvec8 f16mat2x4
#define pm_afp8(v) pm_half8(v)
f16mat2x4 pm_half8(f16mat2x4 m) { return m; }
f16mat2x4 pm_half8(mat2x4 m) { return f16mat2x4(pm_half(m[0]), pm_half(m[1])); }
)";

constexpr std::string_view kVec8Matrix = R"(
#define buffer_ld8(buf, i) pm_afp8(buf[i])
#define buffer_cp8(buf, i, sbuf, si) buf[i] = sbuf[si]
#define buffer_cp1to8(buf, i, sbuf, si4, sii4) \
  do { \
    uvec4 pm_a_ = uvec4(si4), pm_b_ = uvec4(sii4); \
    buf[i] = sfpvec8(sfpvec4(sbuf[pm_a_.r], sbuf[pm_a_.g], sbuf[pm_a_.b], sbuf[pm_a_.a]), \
                     sfpvec4(sbuf[pm_b_.r], sbuf[pm_b_.g], sbuf[pm_b_.b], sbuf[pm_b_.a])); \
  } while (false)
#define buffer_cp4to8(buf, i, sbuf, si2) \
  do { \
    uvec2 pm_from_ = uvec2(si2); \
    buf[i] = sfpvec8(sbuf[pm_from_.r], sbuf[pm_from_.g]); \
  } while (false)
#define buffer_cp8to1(buf, i4, ii4, sbuf, si) \
  do { \
    uvec4 pm_a_ = uvec4(i4), pm_b_ = uvec4(ii4); \
    sfpvec8 pm_v_ = sbuf[si]; \
    buf[pm_a_.r] = pm_v_[0].r; \
    buf[pm_a_.g] = pm_v_[0].g; \
    buf[pm_a_.b] = pm_v_[0].b; \
    buf[pm_a_.a] = pm_v_[0].a; \
    buf[pm_b_.r] = pm_v_[1].r; \
    buf[pm_b_.g] = pm_v_[1].g; \
    buf[pm_b_.b] = pm_v_[1].b; \
    buf[pm_b_.a] = pm_v_[1].a; \
  } while (false)
#define buffer_cp8to4(buf, i2, sbuf, si) \
  do { \
    uvec2 pm_to_ = uvec2(i2); \
    sfpvec8 pm_v_ = sbuf[si]; \
    buf[pm_to_.r] = pm_v_[0]; \
    buf[pm_to_.g] = pm_v_[1]; \
  } while (false)
)";

// vec8 as four words, used in packed modes and if 16-bit floats have no matrix types. pm_words(v): words of a sfpvec4; pm_vector(words):
// its inverse.
constexpr std::string_view kVec8Words = R"(
#define sfpvec8 uvec4
#define buffer_ld8(buf, i) pm_from8(buf[i])
#define buffer_st8(buf, i, v) buf[i] = pm_pack8(v)
#define buffer_cp8(buf, i, sbuf, si) buf[i] = sbuf[si]
afpvec8 pm_from8(uvec4 words) { return afpvec8(pm_from4(words.xy), pm_from4(words.zw)); }
uvec4 pm_pack8(mat2x4 m) { return uvec4(pm_pack4(m[0]), pm_pack4(m[1])); }
#define buffer_cp1to8(buf, i, sbuf, si4, sii4) \
  do { \
    uvec4 pm_a_ = uvec4(si4), pm_b_ = uvec4(sii4); \
    vec4 pm_first_ = vec4(float(sbuf[pm_a_.r]), float(sbuf[pm_a_.g]), float(sbuf[pm_a_.b]), float(sbuf[pm_a_.a])); \
    vec4 pm_second_ = vec4(float(sbuf[pm_b_.r]), float(sbuf[pm_b_.g]), float(sbuf[pm_b_.b]), float(sbuf[pm_b_.a])); \
    buf[i] = uvec4(pm_pack4(pm_first_), pm_pack4(pm_second_)); \
  } while (false)
#define buffer_cp4to8(buf, i, sbuf, si2) \
  do { \
    uvec2 pm_from_ = uvec2(si2); \
    buf[i] = uvec4(pm_words(sbuf[pm_from_.r]), pm_words(sbuf[pm_from_.g])); \
  } while (false)
#define buffer_cp8to1(buf, i4, ii4, sbuf, si) \
  do { \
    uvec4 pm_a_ = uvec4(i4), pm_b_ = uvec4(ii4), pm_vec8_words_ = sbuf[si]; \
    vec4 pm_first_ = pm_unpack4(pm_vec8_words_.xy), pm_second_ = pm_unpack4(pm_vec8_words_.zw); \
    buf[pm_a_.r] = sfp(pm_first_.r); \
    buf[pm_a_.g] = sfp(pm_first_.g); \
    buf[pm_a_.b] = sfp(pm_first_.b); \
    buf[pm_a_.a] = sfp(pm_first_.a); \
    buf[pm_b_.r] = sfp(pm_second_.r); \
    buf[pm_b_.g] = sfp(pm_second_.g); \
    buf[pm_b_.b] = sfp(pm_second_.b); \
    buf[pm_b_.a] = sfp(pm_second_.a); \
  } while (false)
#define buffer_cp8to4(buf, i2, sbuf, si) \
  do { \
    uvec2 pm_to_ = uvec2(i2); \
    uvec4 pm_vec8_words_ = sbuf[si]; \
    buf[pm_to_.r] = pm_vector(pm_vec8_words_.xy); \
    buf[pm_to_.g] = pm_vector(pm_vec8_words_.zw); \
  } while (false)
)";
constexpr std::string_view kVec8Fp16Words = R"(
uvec4 pm_pack8(f16mat2x4 m) { return uvec4(pm_pack4(m[0]), pm_pack4(m[1])); }
)";

// vec8 in fp16 without fp16 arithmetic: a structure, which shaders for year_2024 declare themselves.
constexpr std::string_view kVec8Struct = R"(
uint pm_vec8_index_;
uint pm_save_vec8_index(uint i) { return pm_vec8_index_ = i; }
#define buffer_ld8(buf, i) mat2x4(vec4(buf[pm_save_vec8_index(uint(i))].abcd), vec4(buf[pm_vec8_index_].efgh))
#define buffer_st8(buf, i, v) \
  do { \
    uint pm_i_ = uint(i); \
    mat2x4 pm_v_ = mat2x4(v); \
    buf[pm_i_].abcd = f16vec4(pm_round(pm_v_[0])); \
    buf[pm_i_].efgh = f16vec4(pm_round(pm_v_[1])); \
  } while (false)
#define buffer_cp8(buf, i, sbuf, si) \
  do { \
    uint pm_i_ = uint(i), pm_from_ = uint(si); \
    buf[pm_i_].abcd = sbuf[pm_from_].abcd; \
    buf[pm_i_].efgh = sbuf[pm_from_].efgh; \
  } while (false)
#define buffer_cp1to8(buf, i, sbuf, si4, sii4) \
  do { \
    uint pm_i_ = uint(i); \
    uvec4 pm_a_ = uvec4(si4), pm_b_ = uvec4(sii4); \
    buf[pm_i_].abcd.r = sbuf[pm_a_.r]; \
    buf[pm_i_].abcd.g = sbuf[pm_a_.g]; \
    buf[pm_i_].abcd.b = sbuf[pm_a_.b]; \
    buf[pm_i_].abcd.a = sbuf[pm_a_.a]; \
    buf[pm_i_].efgh.r = sbuf[pm_b_.r]; \
    buf[pm_i_].efgh.g = sbuf[pm_b_.g]; \
    buf[pm_i_].efgh.b = sbuf[pm_b_.b]; \
    buf[pm_i_].efgh.a = sbuf[pm_b_.a]; \
  } while (false)
#define buffer_cp4to8(buf, i, sbuf, si2) \
  do { \
    uint pm_i_ = uint(i); \
    uvec2 pm_from_ = uvec2(si2); \
    buf[pm_i_].abcd = sbuf[pm_from_.r]; \
    buf[pm_i_].efgh = sbuf[pm_from_.g]; \
  } while (false)
#define buffer_cp8to1(buf, i4, ii4, sbuf, si) \
  do { \
    uvec4 pm_a_ = uvec4(i4), pm_b_ = uvec4(ii4); \
    uint pm_from_ = uint(si); \
    buf[pm_a_.r] = sbuf[pm_from_].abcd.r; \
    buf[pm_a_.g] = sbuf[pm_from_].abcd.g; \
    buf[pm_a_.b] = sbuf[pm_from_].abcd.b; \
    buf[pm_a_.a] = sbuf[pm_from_].abcd.a; \
    buf[pm_b_.r] = sbuf[pm_from_].efgh.r; \
    buf[pm_b_.g] = sbuf[pm_from_].efgh.g; \
    buf[pm_b_.b] = sbuf[pm_from_].efgh.b; \
    buf[pm_b_.a] = sbuf[pm_from_].efgh.a; \
  } while (false)
#define buffer_cp8to4(buf, i2, sbuf, si) \
  do { \
    uvec2 pm_to_ = uvec2(i2); \
    uint pm_from_ = uint(si); \
    buf[pm_to_.r] = sbuf[pm_from_].abcd; \
    buf[pm_to_.g] = sbuf[pm_from_].efgh; \
  } while (false)
)";
constexpr std::string_view kVec8StructDeclaration = R"(
struct sfpvec8 { f16vec4 abcd, efgh; };
)";

// --- Images: one texel per element or vec4, two per vec8. Positions are integers.

constexpr std::string_view kTexels = R"(
ivec3 pm_texel_;
int pm_texel0(int p) { pm_texel_ = ivec3(p * 2, 0, 0); return pm_texel_.x; }
ivec2 pm_texel0(ivec2 p) { pm_texel_ = ivec3(p.x * 2, p.y, 0); return pm_texel_.xy; }
ivec3 pm_texel0(ivec3 p) { pm_texel_ = ivec3(p.x * 2, p.yz); return pm_texel_; }
int pm_texel1_1d() { return pm_texel_.x + 1; }
ivec2 pm_texel1_2d() { return pm_texel_.xy + ivec2(1, 0); }
ivec3 pm_texel1_3d() { return pm_texel_ + ivec3(1, 0, 0); }
)";

// The image unit's rounding to fp16 is implementation-defined and ignores the shader's rounding mode.
constexpr std::string_view kTexelRounding = R"(
float pm_texel_round(float v) { return pm_unpack2(pm_bits1(v)).x; }
vec4 pm_texel_round(vec4 v) { return pm_unpack4(pm_pack4(v)); }
)";

// Works around drivers whose fp16 conversion overflows its exponent: 65,536 becomes infinity and 131,072 NaN, but much larger values,
// infinity and NaN corrupt the adjacent element.
constexpr std::string_view kTexelBounds = R"(
float pm_texel_clamp(float v) { return isnan(v) ? 131072.0 : abs(v) > 65536.0 ? sign(v) * 65536.0 : v; }
vec4 pm_texel_clamp(vec4 v) {
  return mix(mix(v, sign(v) * 65536.0, greaterThan(abs(v), vec4(65536.0))), vec4(131072.0), isnan(v));
}
)";

// $d is replaced with 1d, 2d or 3d, and $p with the type of a position.
constexpr std::string_view kImages = R"(
#define image$d_ld1(tex, p) pm_afp1(texelFetch(tex, $p(p), 0).r)
#define image$d_ld4(tex, p) pm_afp4(texelFetch(tex, $p(p), 0))
#define image$d_ld8(tex, p) \
  afpvec8(pm_afp4(texelFetch(tex, pm_texel0($p(p)), 0)), pm_afp4(texelFetch(tex, pm_texel1_$d(), 0)))
#define image$d_st1(img, p, v) imageStore(img, $p(p), vec4(pm_texel_value1(v), 0.0, 0.0, 0.0))
#define image$d_st4(img, p, v) imageStore(img, $p(p), pm_texel_value4(v))
#define image$d_st8(img, p, v) \
  do { \
    $p pm_to_ = pm_texel0($p(p)), pm_next_ = pm_texel1_$d(); \
    mat2x4 pm_v_ = mat2x4(v); \
    imageStore(img, pm_to_, pm_texel_value4(pm_v_[0])); \
    imageStore(img, pm_next_, pm_texel_value4(pm_v_[1])); \
  } while (false)
#define image$d_cp1(img, p, tex, sp) imageStore(img, $p(p), pm_texel_copy1(texelFetch(tex, $p(sp), 0)))
#define image$d_cp4(img, p, tex, sp) imageStore(img, $p(p), pm_texel_copy4(texelFetch(tex, $p(sp), 0)))
#define image$d_cp8(img, p, tex, sp) \
  do { \
    $p pm_to_ = pm_texel0($p(p)), pm_next_ = pm_texel1_$d(); \
    $p pm_from_ = pm_texel0($p(sp)), pm_from_next_ = pm_texel1_$d(); \
    imageStore(img, pm_to_, pm_texel_copy4(texelFetch(tex, pm_from_, 0))); \
    imageStore(img, pm_next_, pm_texel_copy4(texelFetch(tex, pm_from_next_, 0))); \
  } while (false)
)";

std::string make_image_macros(std::string_view dimensions, std::string_view position) {
  std::string text(kImages);
  for (size_t at = text.find('$'); at != std::string::npos; at = text.find('$', at))
    text.replace(at, 2, text[at + 1] == 'd' ? dimensions : position);
  return text;
}

// Defines the texel macros for `count` elements: the texel to store for a value, and for a texel that is copied from another image.
std::string make_texel_macros(std::string_view count, std::string_view type, bool rounds, bool bounds) {
  const std::string typed = std::string(type) + "(v)", rounded = rounds ? "pm_texel_round(" + typed + ")" : typed;
  return make_define_directive("pm_texel_value" + std::string(count) + "(v)", bounds ? "pm_texel_clamp(" + rounded + ")" : rounded) +
         make_define_directive("pm_texel_copy" + std::string(count) + "(v)", bounds ? "pm_texel_clamp(v)" : "v");
}

// Returns the texel macros. `fp16_texel1`, `fp16_texel4`: texels with 1 or 4 channels are fp16.
std::string make_texel_conversions(bool fp16_texel1, bool fp16_texel4, bool bounds) {
  return std::string(fp16_texel4 ? kTexelRounding : "") + std::string(fp16_texel4 && bounds ? kTexelBounds : "") +
         make_texel_macros("1", "float", fp16_texel1, fp16_texel1 && bounds) +
         make_texel_macros("4", "vec4", fp16_texel4, fp16_texel4 && bounds);
}

}  // namespace

std::string make_vec8_section(const ShaderOptions& options, bool declares_vec8) {
  const bool has_fp16 = has_fp16_arithmetic(options);
  const std::string text(has_fp16 ? kVec8Fp16Arithmetic : kVec8Arithmetic);
  if (options.storage == StorageType::fp32)
    return text + make_define_directive("sfpvec8", "mat2x4") + make_define_directive("buffer_st8(buf, i, v)", "buf[i] = mat2x4(v)") +
           std::string(kVec8Matrix);
  if (options.storage == StorageType::fp16 && has_fp16)
    return text + make_define_directive("sfpvec8", "f16mat2x4") + make_define_directive("buffer_st8(buf, i, v)", "buf[i] = pm_half8(v)") +
           std::string(kVec8Matrix);
  if (options.storage == StorageType::fp16)
    return text + std::string(declares_vec8 ? "" : kVec8StructDeclaration) + std::string(kVec8Struct);
  const bool vectors = options.storage == StorageType::bf16;
  return text + make_define_directive("pm_words(v)", vectors ? "pm_pack4(vec4(v))" : "(v)") +
         make_define_directive("pm_vector(words)", vectors ? "sfpvec4(pm_unpack4(words))" : "(words)") + std::string(kVec8Words) +
         std::string(has_fp16 ? kVec8Fp16Words : "");
}

std::string make_image_section(const ShaderOptions& options) {
  if (!options.image_storage) return {};
  const bool fp16_texel1 = options.storage == StorageType::fp16, fp16_texel4 = fp16_texel1 || options.storage == StorageType::fp16_packed;
  return make_define_directive("NCNN_image_shader", "1") + make_define_directive("unfp", fp16_texel4 ? "mediump" : "highp") +
         make_define_directive("imfmtc1", fp16_texel1 ? "r16f" : "r32f") +
         make_define_directive("imfmtc4", fp16_texel4 ? "rgba16f" : "rgba32f") +
         make_texel_conversions(fp16_texel1, fp16_texel4, options.clamps_texels) + std::string(kTexels) + make_image_macros("1d", "int") +
         make_image_macros("2d", "ivec2") + make_image_macros("3d", "ivec3");
}

}  // namespace pumice

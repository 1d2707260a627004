// Element access in every storage type, with stores of whole 32-bit words.
//
// Declare arrays with the storage types of the preamble: `layout(binding = 0) readonly buffer X { sfp x[]; };` or `sfpvec4 x[]`. Indices
// count elements (vec4s for the _vec4 forms) and are evaluated once. Values are float in every storage type. In fp16_packed and bf16_packed
// an `sfp` is a word of two elements.
#ifndef PM_TENSOR_GLSL
#define PM_TENSOR_GLSL

// Elements per 32-bit word; a single invocation writes all of them. Elements past the end of a tensor are padding and may have any value.
#if NCNN_fp16_packed || NCNN_fp16_storage || NCNN_bf16_packed || NCNN_bf16_storage
#define PM_GRAIN 2
#else
#define PM_GRAIN 1
#endif

#define pm_load(x, i) float(buffer_ld1(x, i))
#define pm_load_vec4(x, i) vec4(buffer_ld4(x, i))
#define pm_store_vec4(y, i, v) buffer_st4(y, i, afpvec4(v))

// Rounds to the storage type, as a store followed by a load would.
#if NCNN_fp16_packed || NCNN_bf16_packed
#define pm_stored_vec4(v) vec4(pm_unpack4(pm_pack4(pm_value4(afpvec4(v)))))
#elif NCNN_fp16_storage || NCNN_bf16_storage
#define pm_stored_vec4(v) vec4(sfpvec4(pm_round(vec4(afpvec4(v)))))
#else
#define pm_stored_vec4(v) (v)
#endif

// Stores an element of a word that other invocations may be writing too: an atomic loop in the packed modes.
#define pm_store(y, i, v) buffer_st1(y, i, afp(v))

// Two or four adjacent elements of an array of scalars. pm_load2, pm_store2: i is even. pm_load4, pm_store4: i is a multiple of PM_GRAIN.
#if PM_SFP_LANES == 2
#define pm_load2(x, i) pm_unpack2(x[uint(i) >> 1])
#define pm_load4(x, i) vec4(pm_unpack2(x[pm_keep(uint(i) >> 1)]), pm_unpack2(x[pm_kept + 1u]))
#define pm_store2(t, i, a, b) t[uint(i) >> 1] = pm_pack2(vec2(a, b))
#define pm_store4(t, i, v)                        \
  do {                                            \
    uint pm_word_ = uint(i) >> 1;                 \
    vec4 pm_value_ = vec4(v);                     \
    t[pm_word_] = pm_pack2(pm_value_.xy);         \
    t[pm_word_ + 1u] = pm_pack2(pm_value_.zw);    \
  } while (false)
#else
#define pm_load2(x, i) vec2(pm_load(x, pm_keep(i)), pm_load(x, pm_kept + 1u))
#define pm_load4(x, i) vec4(pm_load(x, pm_keep(i)), pm_load(x, pm_kept + 1u), pm_load(x, pm_kept + 2u), pm_load(x, pm_kept + 3u))
#define pm_store2(t, i, a, b)                     \
  do {                                            \
    uint pm_index_ = uint(i);                     \
    vec2 pm_value_ = vec2(a, b);                  \
    pm_store(t, pm_index_, pm_value_.x);          \
    pm_store(t, pm_index_ + 1u, pm_value_.y);     \
  } while (false)
#define pm_store4(t, i, v)                        \
  do {                                            \
    uint pm_index_ = uint(i);                     \
    vec4 pm_value_ = vec4(v);                     \
    pm_store(t, pm_index_, pm_value_.x);          \
    pm_store(t, pm_index_ + 1u, pm_value_.y);     \
    pm_store(t, pm_index_ + 2u, pm_value_.z);     \
    pm_store(t, pm_index_ + 3u, pm_value_.w);     \
  } while (false)
#endif

// Unpacks two fp16 or bf16 values from a word.
vec2 pm_unpack_halves(uint word) {
#if NCNN_bf16_packed || NCNN_bf16_storage
  return uintBitsToFloat(uvec2(word << 16, word & 0xffff0000u));
#else
  return unpackHalf2x16(word);
#endif
}

// Stores two adjacent elements at any i: as one word if i is even, otherwise atomically (for a view that starts mid-word).
#define pm_store2_any(t, i, a, b)                 \
  do {                                            \
    uint pm_any_ = uint(i);                       \
    vec2 pm_pair_ = vec2(a, b);                   \
    if ((pm_any_ & 1u) == 0u) {                   \
      pm_store2(t, pm_any_, pm_pair_.x, pm_pair_.y); \
    } else {                                      \
      pm_store(t, pm_any_, pm_pair_.x);           \
      pm_store(t, pm_any_ + 1u, pm_pair_.y);      \
    }                                             \
  } while (false)

// Evaluate an index once in macros that use it several times.
uint pm_kept;
uint pm_keep(uint index) { return pm_kept = index; }

// 8-bit and 16-bit elements in arrays of words (`uint x[]`): loads by element, stores by word (or atomically by element).
#define pm_load_u8(x, i) bitfieldExtract(x[pm_keep(i) >> 2], int(pm_kept & 3u) * 8, 8)
#define pm_load_i8(x, i) bitfieldExtract(int(x[pm_keep(i) >> 2]), int(pm_kept & 3u) * 8, 8)
#define pm_load_u16(x, i) bitfieldExtract(x[pm_keep(i) >> 1], int(pm_kept & 1u) * 16, 16)
#define pm_load_i16(x, i) bitfieldExtract(int(x[pm_keep(i) >> 1]), int(pm_kept & 1u) * 16, 16)
#define pm_load_bool(x, i) (pm_load_u8(x, i) != 0u)
#define pm_load_half(x, i) unpackHalf2x16(x[pm_keep(i) >> 1] >> ((pm_kept & 1u) * 16u))[0]
#define pm_load_bfloat16(x, i) uintBitsToFloat(x[pm_keep(i) >> 1] << 16 - (pm_kept & 1u) * 16u & 0xffff0000u)

ivec4 pm_unpack_i8(uint word) { return ivec4(uvec4(word << 24, word << 16, word << 8, word)) >> 24; }
ivec4 pm_unpack_u8(uint word) { return ivec4(word & 0xffu, word >> 8 & 0xffu, word >> 16 & 0xffu, word >> 24); }
uint pm_pack_u8(uvec4 v) { v &= 0xffu; return v.x | v.y << 8 | v.z << 16 | v.w << 24; }
uint pm_pack_i8(ivec4 v) { return pm_pack_u8(uvec4(v)); }
uint pm_pack_u16(uvec2 v) { v &= 0xffffu; return v.x | v.y << 16; }
uint pm_pack_i16(ivec2 v) { return pm_pack_u16(uvec2(v)); }

#define pm_store_u8(y, i, v) pm_store_bits(y, uint(i) >> 2, (uint(i) & 3u) * 8u, 0xffu, uint(v))
#define pm_store_u16(y, i, v) pm_store_bits(y, uint(i) >> 1, (uint(i) & 1u) * 16u, 0xffffu, uint(v))
#define pm_store_bits(y, word, shift, mask, v)                            \
  do {                                                                    \
    uint pm_word_ = word, pm_shift_ = shift, pm_bits_ = ((v) & mask) << pm_shift_; \
    uint pm_seen_ = atomicCompSwap(y[pm_word_], 0u, 0u), pm_given_;       \
    do {                                                                  \
      pm_given_ = pm_seen_;                                               \
      pm_seen_ = atomicCompSwap(y[pm_word_], pm_given_, (pm_given_ & ~(mask << pm_shift_)) | pm_bits_); \
    } while (pm_seen_ != pm_given_);                                      \
  } while (false)

// int64 as two words (`uvec2 x[]`, low word first), for devices without shaderInt64.
uvec2 pm_i64(int v) { return uvec2(uint(v), uint(v >> 31)); }
bool pm_fits_i32(uvec2 v) { return v.y == uint(int(v.x) >> 31); }

#endif

// Byte-granular stores to arrays of words (`buffer Y { uint y[]; }`).
#ifndef PM_BYTE_STORES_GLSL
#define PM_BYTE_STORES_GLSL
#include "include/tensor.glsl"

// Stores bytes [first, last) of a word; partial words atomically, since other invocations may write the remaining bytes.
#define pm_store_bytes(y, word, value, first, last)                                                              \
  do {                                                                                                           \
    const uint pm_first_ = first, pm_last_ = last;                                                               \
    if (pm_last_ - pm_first_ == 4u) {                                                                            \
      y[word] = value;                                                                                           \
    } else if (pm_last_ > pm_first_) {                                                                           \
      const uint pm_mask_ = (1u << 8u * (pm_last_ - pm_first_)) - 1u << 8u * pm_first_, pm_made_ = value;         \
      pm_store_bits(y, word, 0u, pm_mask_, pm_made_);                                                            \
    }                                                                                                            \
  } while (false)

#endif

// Operands and parameters of an attention.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>

#include "operators/table/lowering.h"

namespace pumice {

// A tensor viewed as [batch, heads, rows, size]; elements of the last axis are contiguous.
struct HeadTensor {
  Operand operand;
  std::array<int64_t, 4> sizes;
  std::array<int64_t, 3> strides;  // strides of the first three axes, in elements
  uint64_t misalignment = 0;       // byte distance of its start from the preceding 16-byte boundary
  int64_t first = 0;               // index of the view's first element in the tensor, in elements

  int64_t batch() const { return sizes[0]; }
  int64_t heads() const { return sizes[1]; }
  int64_t rows() const { return sizes[2]; }
  int64_t size() const { return sizes[3]; }
  int64_t count_spanned_elements() const;                      // number of elements from the first to the last
  bool has_aligned_vectors(DType dtype, int64_t width) const;  // whether rows are aligned vectors of `width` elements
};

struct AttentionMask {
  Operand operand;
  bool is_bool = false, true_is_masked = false;                    // true_is_masked: true means masked out instead of visible
  double masked_score = -std::numeric_limits<double>::infinity();  // score of masked keys, for bool masks
  std::array<int64_t, 4> strides{};                                // stride is 0 on broadcast axes
  int64_t keys = 0;                                                // number of keys that the mask covers; later keys are masked out
  int64_t first = 0;                                               // index of the mask's first element in its tensor
};

struct AttentionParams {
  HeadTensor q, k, v, y;  // the number of query heads is a multiple of the number of KV heads
  std::optional<AttentionMask> mask = {};
  std::optional<Operand> kv_lengths = {};          // int64 kv_len per batch item; the last query is at position kv_len - 1
  int64_t first_kv_length = 0;                     // index in kv_lengths of the first batch item
  double scale = 1, softcap = 0;                   // softcap 0: no soft capping
  int64_t first = -kUnbounded, last = kUnbounded;  // query i attends to keys i + first .. i + last
  // Scales of int8 keys and values, one per row of a head; set only if k and v are int8, whose rows are then contiguous.
  std::optional<Operand> k_scales = {}, v_scales = {};
  bool zero_empty = true;  // if true, a query without visible keys produces zeros; if false, NaN

  bool has_int8_kv() const { return k_scales.has_value(); }

  static constexpr int64_t kUnbounded = int64_t{1} << 30;
};

}  // namespace pumice

// The operands of an attention and what its scores are made with.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>

#include "operators/row/lowering.h"

namespace pumice {

// A tensor as [batch, heads, rows, size]; elements of the last axis lie together.
struct Heads {
  Operand operand;
  std::array<int64_t, 4> sizes;
  std::array<int64_t, 3> strides;  // strides of the axes before the last, in elements
  uint64_t phase = 0;              // bytes from the last 16-byte boundary to where it begins
  int64_t first = 0;               // element from there on, where a part of it begins

  int64_t batch() const { return sizes[0]; }
  int64_t heads() const { return sizes[1]; }
  int64_t rows() const { return sizes[2]; }
  int64_t size() const { return sizes[3]; }
  int64_t span() const;                               // elements from the first to the last
  bool in_vectors(DType dtype, int64_t width) const;  // aligned ones of so many elements
};

struct AttentionMask {
  Operand operand;
  bool is_bool = false, hides = false;                       // hides: true for keys that are not seen
  double hidden = -std::numeric_limits<double>::infinity();  // the score of what a bool mask hides
  std::array<int64_t, 4> strides{};                          // 0 where it is broadcast
  int64_t keys = 0;                                          // past them nothing is seen
  int64_t first = 0;                                         // the element where it begins
};

struct Attention {
  Heads q, k, v, y;  // heads of q are a multiple of those of k and v
  std::optional<AttentionMask> mask = {};
  std::optional<Operand> counts = {};              // int64 for each image: its keys, and places are counted from the end of them
  int64_t first_count = 0;                         // the number of the first image
  double scale = 1, softcap = 0;                   // 0: none
  int64_t first = -kUnbounded, last = kUnbounded;  // row i sees keys i + first .. i + last
  // Keys and values are int8, of which each row of a head has a scale here; they lie row after row.
  std::optional<Operand> k_scales = {}, v_scales = {};
  bool zero_empty = true;  // a row that sees no key is zero, otherwise NaN

  bool in_bytes() const { return k_scales.has_value(); }

  static constexpr int64_t kUnbounded = int64_t{1} << 30;
};

}  // namespace pumice

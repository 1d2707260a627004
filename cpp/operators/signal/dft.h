// The geometry of discrete Fourier transforms, which shape rules and lowerings share.
#pragma once

#include "operators/row/operator_table.h"

namespace pumice {

class LowerContext;

// A transform of [outer, size, inner, components] along the second axis.
struct Transform {
  int64_t outer = 1, size = 0, inner = 1, components = 1;
  int64_t length = 0, made = 0, result = 2;  // made: frequencies or elements; of `result` components
  bool inverse = false, symmetric = false;   // symmetric: the second half of x is the conjugate of the first
  int64_t frames = 1, batch_step = 0, frame_step = 0;
};

// The numbers that the host reads, where they are given.
struct TransformNumbers {
  std::optional<int64_t> length, axis, step;
};

Transform dft_of(std::string_view node, const Attributes& attributes, const Shape& x, const TransformNumbers& numbers);
Transform stft_of(std::string_view node, const Attributes& attributes, const Shape& x, const Shape* window,
                  const TransformNumbers& numbers);

// Products of complex numbers, or of real ones with complex ones, in all passes of a transform.
uint64_t dft_flop(const LowerContext& node);
uint64_t stft_flop(const LowerContext& node);

}  // namespace pumice

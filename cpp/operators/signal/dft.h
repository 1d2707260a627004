// Geometry of discrete Fourier transforms, shared by shape rules and lowerings.
#pragma once

#include "operators/table/operator_table.h"

namespace pumice {

class LowerContext;

// A transform of [outer, size, inner, components] along the second axis.
struct DftGeometry {
  int64_t outer = 1, size = 0, inner = 1, components = 1;
  int64_t length = 0, num_results = 0, result = 2;  // num_results: output frequencies or elements, with `result` components each
  bool inverse = false, symmetric = false;          // symmetric: the second half of x is the conjugate of the first
  int64_t frames = 1, batch_step = 0, frame_step = 0;
};

// Inputs that the host reads; nullopt if omitted.
struct DftInputs {
  std::optional<int64_t> length, axis, step;
};

DftGeometry make_dft_geometry(std::string_view node, const Attributes& attributes, const Shape& x, const DftInputs& inputs);
DftGeometry make_stft_geometry(std::string_view node, const Attributes& attributes, const Shape& x, const Shape* window,
                               const DftInputs& inputs);

// FLOPs of the complex, or real times complex, multiply-adds in all passes of a transform.
uint64_t dft_flop(const LowerContext& node);
uint64_t stft_flop(const LowerContext& node);

}  // namespace pumice

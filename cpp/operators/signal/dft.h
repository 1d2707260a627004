// Geometry of discrete Fourier transforms, shared by shape rules and lowerings.
#pragma once

#include "operators/table/operator_table.h"

namespace pumice {

class LowerContext;

// A transform of [outer, size, inner, components] along the second axis.
struct DftGeometry {
  int64_t outer = 1, size = 0, inner = 1, components = 1;
  int64_t length = 0, num_results = 0, result = 2;  // num_results: number of output frequencies or samples, each with `result` components
  bool inverse = false, symmetric = false;          // symmetric: the second half of x is the conjugate of the first
  int64_t frames = 1, batch_step = 0, frame_step = 0;
};

// The inputs that the host reads; nullopt if an input is omitted.
struct DftInputs {
  std::optional<int64_t> length, axis, step;
};

DftGeometry make_dft_geometry(std::string_view node, const Attributes& attributes, const Shape& x, const DftInputs& inputs);
DftGeometry make_stft_geometry(std::string_view node, const Attributes& attributes, const Shape& x, const Shape* window,
                               const DftInputs& inputs);

// Count the FLOPs of the multiply-adds in all passes of a transform.
uint64_t count_dft_flops(const LowerContext& node);
uint64_t count_stft_flops(const LowerContext& node);

}  // namespace pumice

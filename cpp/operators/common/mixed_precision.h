// Kernels whose float arrays have different storage types: see include/mixed_precision.glsl.
#pragma once

#include <initializer_list>
#include <string_view>
#include <utility>

#include "core/dtype.h"
#include "dispatch/kernel/kernel.h"

namespace pumice {

// The storage type of a kernel (the 16-bit type if any array has one), and macros for the arrays that are float32 instead.
struct MixedPrecisionArrays {
  DType storage = DType::float32;
  Macros macros = {};
  void append_to(Macros& kernel_macros) const;  // appends the macros to a kernel's macros
};

// `arrays`: dtype by macro letter ("X" of X_FLOAT). Dtypes other than fp32, fp16 and bf16 are ignored.
MixedPrecisionArrays make_mixed_precision_arrays(std::initializer_list<std::pair<std::string_view, DType>> arrays);

}  // namespace pumice

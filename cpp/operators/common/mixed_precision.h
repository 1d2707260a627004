// Macros for kernels whose float arrays have different storage types: see include/mixed_precision.glsl.
#pragma once

#include <initializer_list>
#include <string_view>
#include <utility>

#include "core/dtype.h"
#include "dispatch/kernel/kernel.h"

namespace pumice {

// The storage type of a kernel, and macros for the arrays that are float32 instead. The storage type is 16-bit if any array is.
struct MixedPrecisionArrays {
  DType storage = DType::float32;
  Macros macros = {};
  void append_to(Macros& kernel_macros) const;  // appends the macros to a kernel's macros
};

// `arrays`: pairs of the prefix of an array's macro ("X" for X_FLOAT) and the array's dtype. Dtypes other than fp32, fp16 and bf16 are
// ignored.
MixedPrecisionArrays make_mixed_precision_arrays(std::initializer_list<std::pair<std::string_view, DType>> arrays);

}  // namespace pumice

// Kernels whose arrays of floats need not be stored alike: see include/mixed.glsl.
#pragma once

#include <initializer_list>
#include <string_view>
#include <utility>

#include "core/dtype.h"
#include "dispatch/kernel/kernel.h"

namespace pumice {

// The storage that such a kernel is compiled for, the 16-bit one if there is any, and the macros of the arrays that are float32 beside it.
struct MixedArrays {
  DType storage = DType::float32;
  Macros macros = {};
  void tell(Macros& kernel) const;  // appends them to a kernel's macros
};

// `arrays`: what they hold, by the letter of the macro ("X" of X_FLOAT). Those of other elements than working floats say nothing.
MixedArrays mixed_arrays(std::initializer_list<std::pair<std::string_view, DType>> arrays);

}  // namespace pumice

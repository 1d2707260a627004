// Element types by ONNX number (TensorProto.DataType).
#pragma once

#include <cstdint>
#include <optional>

#include "core/dtype.h"

namespace pumice {

// Returns the dtype with an ONNX number; nullopt if the engine does not support it.
std::optional<DType> from_onnx_dtype(int64_t number);
// Returns the ONNX number of a dtype. Throws UnsupportedError if it has none.
int64_t to_onnx_dtype(DType dtype);

}  // namespace pumice

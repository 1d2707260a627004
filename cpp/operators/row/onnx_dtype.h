// Element types as ONNX numbers them (TensorProto.DataType).
#pragma once

#include <cstdint>
#include <optional>

#include "core/dtype.h"

namespace pumice {

// The dtype of ONNX's number for it; none where that is no element type of the engine.
std::optional<DType> dtype_from_onnx(int64_t number);
// ONNX's number for a dtype. Throws UnsupportedError where it has none.
int64_t onnx_number(DType dtype);

}  // namespace pumice

#include "operators/table/result_dtype.h"

namespace pumice {

DType get_result_float_dtype(const OperatorRow& row, DType float_dtype) {
  return float_dtype == DType::float16 && row.precision.overflows && row.precision.mixed_precision ? DType::float32 : float_dtype;
}

}  // namespace pumice

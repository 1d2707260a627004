#include "operators/table/result_dtype.h"

namespace pumice {

DType float_made_of(const OperatorRow& row, DType inside) {
  return inside == DType::float16 && row.overflows && row.mixes_floats ? DType::float32 : inside;
}

}  // namespace pumice

#include "operators/row/row_floats.h"

#include "operators/row/families.h"

namespace pumice {

bool mixes_floats(const OperatorRow& row) {
  return row.lower == &lower_map || row.lower == &lower_cast || row.lower == &lower_reduce || row.lower == &lower_scan ||
         row.lower == &lower_dynamic_quantize || row.lower == &lower_random;
}

DType float_made_of(const OperatorRow& row, DType inside) {
  return inside == DType::float16 && row.overflows && mixes_floats(row) ? DType::float32 : inside;
}

}  // namespace pumice

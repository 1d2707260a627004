#include "operators/table/value_layout.h"

namespace pumice {

bool accepts_strided_input(const OperatorRow& row, size_t input) {
  return row.strides != StrideSupport::packed && (input == 0 || !row.pack || row.layout.strided_weights);
}

bool writes_strided_output(const OperatorRow& row, size_t output) {
  return (row.strides == StrideSupport::any || row.strides == StrideSupport::image) && !has_bit(row.layout.packed_outputs, output);
}

bool accepts_any_layout(const OperatorRow& row, size_t input) {
  return row.strides == StrideSupport::image && accepts_strided_input(row, input);
}

bool writes_any_layout(const OperatorRow& row, size_t output) {
  return row.strides == StrideSupport::image && writes_strided_output(row, output);
}

bool fits_channels_last(DType dtype, const Shape& shape) {
  return is_operator_float(dtype) && (shape.size() == 3 || shape.size() == 4) && shape[1] % 4 == 0;
}

Strides make_channels_last_strides(const Shape& shape) {
  return compute_layout_strides(shape, shape.size() == 3 ? "NWC" : "NHWC");
}

}  // namespace pumice

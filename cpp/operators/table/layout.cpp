#include "operators/table/layout.h"

namespace pumice {

bool takes_strides(const OperatorRow& row, size_t input) {
  return row.strides != RowStrides::packed && (input == 0 || !row.pack || row.strided_weights);
}

bool makes_strides(const OperatorRow& row, size_t output) {
  return (row.strides == RowStrides::any || row.strides == RowStrides::image) && !has_bit(row.packed_outputs, output);
}

bool takes_any_layout(const OperatorRow& row, size_t input) {
  return row.strides == RowStrides::image && takes_strides(row, input);
}

bool makes_any_layout(const OperatorRow& row, size_t output) {
  return row.strides == RowStrides::image && makes_strides(row, output);
}

bool suits_channels_last(DType dtype, const Shape& shape) {
  return is_working_float(dtype) && (shape.size() == 3 || shape.size() == 4) && shape[1] % 4 == 0;
}

Strides channels_last_strides(const Shape& shape) {
  return layout_strides(shape, shape.size() == 3 ? "NWC" : "NHWC");
}

}  // namespace pumice

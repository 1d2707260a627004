// Helpers for matmuls and convolutions: rules for filters and biases, and the quantized convolution.
#pragma once

#include "graph/nnapi/expansion.h"

namespace pumice::nnapi {

// Checks that the bias (operand 2) has one element per output channel: the size of the given axis of operand 1.
void check_bias_length(Operands& o, size_t axis);
// Checks the dtype of the bias. For quantized operands it must be int32, and its scale the product of their scales; it may omit the scale.
void check_bias(const Expansion& e);
// Checks that operand 1 has the dtype of operand 0, or scales per channel on `channel_axis`.
void check_filter(const Expansion& e, int channel_axis);
// Adds a convolution of quantized x and w in NCHW layout, with its activation.
ValueId add_quantized_conv(Expansion& e, ValueId x, ValueId w, Activation activation, const Quantization& y, const Attributes& attributes);

}  // namespace pumice::nnapi

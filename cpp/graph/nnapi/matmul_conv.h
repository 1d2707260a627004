// Shared by matmuls and convolutions: rules for filters and biases, and the quantized convolution.
#pragma once

#include "graph/nnapi/expansion.h"

namespace pumice::nnapi {

// Checks that operand 2 has one element per channel, as many as the given axis of operand 1.
void check_bias_length(Operands& o, size_t axis);
// Checks that the bias of a quantized product is int32 with the product of the operands' scales as its scale. The bias may omit its scale.
void check_bias(const Expansion& e);
// Checks that operand 1 has operand 0's type, or per-channel scales.
void check_filter(const Expansion& e, int channel_axis);
// Adds a convolution of quantized x and w, in ONNX's layout [batch, channels, ..], with its activation.
ValueId quantized_conv(Expansion& e, ValueId x, ValueId w, Activation activation, const Quantization& y, const Attributes& attributes);

}  // namespace pumice::nnapi

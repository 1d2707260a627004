// Shared by matmuls and convolutions: rules of filters and biases, and the quantized convolution.
#pragma once

#include "graph/nnapi/expansion.h"

namespace pumice::nnapi {

// Operand 2 must have one number per channel: the size of the given axis of operand 1.
void check_bias_length(Operands& o, size_t axis);
// The bias of a quantized product must be int32, scaled by the product of the operands' scales. Its own scale may be omitted.
void check_bias(const Expansion& e);
// Operand 1 must have operand 0's type, or per-channel scales.
void check_filter(const Expansion& e, int channel_axis);
// Adds a convolution of quantized x and w, in ONNX's layout [batch, channels, ..], with its activation.
ValueId quantized_conv(Expansion& e, ValueId x, ValueId w, Activation activation, const Quantization& y, const Attributes& attributes);

}  // namespace pumice::nnapi

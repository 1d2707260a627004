// Parts that products and convolutions share: the rules of filters and biases, and the quantized convolution.
#pragma once

#include "graph/nnapi/expansion.h"

namespace pumice::nnapi {

// Operand 2 has one number for each channel, of which there are as many as operand 1 has on an axis.
void check_bias_length(Operands& o, size_t axis);
// The bias of a quantized product: int32 in units of the product of the operands' scales. It may do without a scale of its own.
void check_bias(const Expansion& e);
// Operand 1 has operand 0's type, or scales of its own for each channel.
void check_filter(const Expansion& e, int channel_axis);
// A convolution of a quantized x and w, in ONNX's layout [batch, channels, ..], with its activation.
ValueId quantized_conv(Expansion& e, ValueId x, ValueId w, Activation activation, const Quantization& y, const Attributes& attributes);

}  // namespace pumice::nnapi

// Weights in the packed formats of the dv interface, and back. Values are the bits of float16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pumice::dv {

constexpr size_t kTableEntries = 256;  // entries of a table of quantized weights

// Weights of a convolution, in the order (kernel, channel, y, x).
struct ConvDims {
  int channels = 1;  // channels that one kernel reads: 1 for a depthwise convolution
  int kx = 1, ky = 1;
  int kernels = 1;         // output channels
  bool quantized = false;  // indices into a table in place of values
  bool prelu = false;      // a slope for each kernel

  size_t weights() const { return static_cast<size_t>(kernels) * channels * kx * ky; }
};

// Weights of a fully connected layer: (c_output, h_output, w_output, c_input, h_input, w_input).
struct FcDims {
  int c_input = 1, h_input = 1, w_input = 1;
  int c_output = 1, h_output = 1, w_output = 1;
  bool quantized = false;

  size_t inputs() const { return static_cast<size_t>(c_input) * h_input * w_input; }
  size_t outputs() const { return static_cast<size_t>(c_output) * h_output * w_output; }
};

// The values to be packed. `table` has kTableEntries values where the weights are quantized, `prelu` is null where there are no slopes.
struct Weights {
  const void* values = nullptr;  // uint8_t indices where they are quantized, else float16
  const uint16_t* table = nullptr;
  const uint16_t* bias = nullptr;
  const uint16_t* prelu = nullptr;
};

// Destinations of the parts of packed weights; null: not wanted. `values` has the table applied.
struct UnpackedWeights {
  uint16_t* values = nullptr;
  uint8_t* indices = nullptr;
  uint16_t* table = nullptr;
  uint16_t* bias = nullptr;
  uint16_t* prelu = nullptr;
};

// The bytes of packed weights. Throw BindingError (D1) naming a dimension that is out of range: at least 1, a kernel's side at most 7,
// sizes that 64 bits hold.
size_t packed_conv_bytes(const ConvDims& dims);
size_t packed_dil_bytes(const ConvDims& dims);
size_t packed_fc_bytes(const FcDims& dims);

// Return the bytes that the packed weights have. A shorter target gets those that fit; the rest of a longer one is zeroed, but
// pack_fc_weights leaves it as it is.
size_t pack_conv_weights(const ConvDims& dims, const Weights& weights, std::span<std::byte> target);
size_t pack_dil_weights(const ConvDims& dims, const Weights& weights, std::span<std::byte> target);
// The bias keeps its order where outputs are put in another one (w_output or h_output over 1), as the format has it.
size_t pack_fc_weights(const FcDims& dims, const Weights& weights, std::span<std::byte> target);

// Checks that packed weights have their bytes. Throws BindingError (D2) where fewer are given; so do the functions that unpack.
void expect_packed(size_t expected, size_t given);
void unpack_conv_weights(const ConvDims& dims, std::span<const std::byte> packed, const UnpackedWeights& target);
void unpack_dil_weights(const ConvDims& dims, std::span<const std::byte> packed, const UnpackedWeights& target);
void unpack_fc_weights(const FcDims& dims, std::span<const std::byte> packed, const UnpackedWeights& target);

// The place of each unpacked value among the packed ones, counted in elements from the beginning: weights in units of their own size, the
// others of float16. Throw UnsupportedError where 31 bits do not count them.
struct PackedPlaces {
  std::vector<int32_t> values, bias, prelu;
};
PackedPlaces conv_weight_places(const ConvDims& dims);
PackedPlaces dil_weight_places(const ConvDims& dims);

// Bytes before the weights of a fully connected layer, in which h and w are 1, and before its biases.
struct FcParts {
  size_t weights, bias;
};
FcParts fc_parts(const FcDims& dims);

}  // namespace pumice::dv

// Packs weights to the formats of the dv interface and unpacks them. Values are float16 bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pumice::dv {

constexpr size_t kTableEntries = 256;  // lookup table of quantized weights

// Convolution weights, in the order (kernel, channel, y, x).
struct ConvDims {
  int channels = 1;  // input channels per kernel: 1 for a depthwise convolution
  int kx = 1, ky = 1;
  int kernels = 1;         // output channels
  bool quantized = false;  // indices into a table instead of values
  bool prelu = false;      // one slope per kernel

  size_t weights() const { return static_cast<size_t>(kernels) * channels * kx * ky; }
};

// Fully connected weights: (c_output, h_output, w_output, c_input, h_input, w_input).
struct FcDims {
  int c_input = 1, h_input = 1, w_input = 1;
  int c_output = 1, h_output = 1, w_output = 1;
  bool quantized = false;

  size_t inputs() const { return static_cast<size_t>(c_input) * h_input * w_input; }
  size_t outputs() const { return static_cast<size_t>(c_output) * h_output * w_output; }
};

// Weights to pack. `table` has kTableEntries values if the weights are quantized; `prelu` is null if there are no slopes.
struct Weights {
  const void* values = nullptr;  // uint8_t indices if quantized, else float16
  const uint16_t* table = nullptr;
  const uint16_t* bias = nullptr;
  const uint16_t* prelu = nullptr;
};

// Destinations for unpacked weights; null to skip. `values` has the table applied.
struct UnpackedWeights {
  uint16_t* values = nullptr;
  uint8_t* indices = nullptr;
  uint16_t* table = nullptr;
  uint16_t* bias = nullptr;
  uint16_t* prelu = nullptr;
};

// Return the size of packed weights. They throw BindingError (D1) naming the dimension that is out of range: dimensions must be at least
// 1, kernel sides at most 7, and total sizes must fit in 63 bits.
size_t compute_packed_conv_bytes(const ConvDims& dims);
size_t compute_packed_dil_bytes(const ConvDims& dims);
size_t compute_packed_fc_bytes(const FcDims& dims);

// Pack weights and return their packed size. If the target is shorter, they write as much as fits; if it is longer, all but
// pack_fc_weights() zero the rest.
size_t pack_conv_weights(const ConvDims& dims, const Weights& weights, std::span<std::byte> target);
size_t pack_dil_weights(const ConvDims& dims, const Weights& weights, std::span<std::byte> target);
// The format reorders the outputs of the weights (if w_output or h_output exceeds 1), but not of the bias.
size_t pack_fc_weights(const FcDims& dims, const Weights& weights, std::span<std::byte> target);

// Throws BindingError (D2) if the packed weights are too short. The unpacking functions make the same check.
void check_packed_size(size_t expected, size_t actual);
void unpack_conv_weights(const ConvDims& dims, std::span<const std::byte> packed, const UnpackedWeights& target);
void unpack_dil_weights(const ConvDims& dims, std::span<const std::byte> packed, const UnpackedWeights& target);
void unpack_fc_weights(const FcDims& dims, std::span<const std::byte> packed, const UnpackedWeights& target);

// Offset of each unpacked value in the packed data: in elements of the weight type for `values`, in float16 elements for `bias` and
// `prelu`. The functions below throw UnsupportedError if an offset does not fit in 31 bits.
struct PackedOffsets {
  std::vector<int32_t> values, bias, prelu;
};
PackedOffsets compute_conv_offsets(const ConvDims& dims);
PackedOffsets compute_dil_offsets(const ConvDims& dims);

// Byte offsets of the weights and biases of a fully connected layer with h = w = 1.
struct FcOffsets {
  size_t weights, bias;
};
FcOffsets compute_fc_offsets(const FcDims& dims);

}  // namespace pumice::dv

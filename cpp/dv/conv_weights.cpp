#include "dv/conv_weights.h"

namespace pumice::dv {
namespace {

HostTensor vector_of(const std::vector<uint16_t>& values) {
  return HostTensor::copy_of(TensorDesc(DType::float16, {static_cast<int64_t>(values.size())}), values.data());
}

}  // namespace

ConvWeights::ConvWeights(const Run& run, std::span<const std::byte> packed)
    : dims_(weight_dims(run.input, run.shape)),
      depthwise_(is_depthwise(run.shape.conv)),
      values_(dims_.weights()),
      bias_(static_cast<size_t>(dims_.kernels)),
      slopes_(dims_.prelu ? bias_.size() : 0) {
  const UnpackedWeights target{.values = values_.data(), .bias = bias_.data(), .prelu = dims_.prelu ? slopes_.data() : nullptr};
  if (run.shape.conv_window.dilated())
    unpack_dil_weights(dims_, packed, target);
  else
    unpack_conv_weights(dims_, packed, target);
}

HostTensor ConvWeights::values(bool transposed) const {
  const int64_t out = dims_.kernels, in = dims_.channels, kx = dims_.kx, ky = dims_.ky;
  const bool swapped = transposed && !depthwise_;
  std::vector<uint16_t> made(values_.size());
  for (int64_t o = 0; o < out; ++o)
    for (int64_t i = 0; i < in; ++i)
      for (int64_t x = 0; x < kx; ++x)
        for (int64_t y = 0; y < ky; ++y) {
          const int64_t kernel = swapped ? i * out + o : o * in + i;
          const int64_t column = transposed ? kx - 1 - x : x, row = transposed ? ky - 1 - y : y;
          made[static_cast<size_t>((kernel * kx + column) * ky + row)] = values_[static_cast<size_t>(((o * in + i) * ky + y) * kx + x)];
        }
  return HostTensor::copy_of(TensorDesc(DType::float16, swapped ? Shape{in, out, kx, ky} : Shape{out, in, kx, ky}), made.data());
}

HostTensor ConvWeights::bias() const {
  return vector_of(bias_);
}

HostTensor ConvWeights::slopes() const {
  return vector_of(slopes_);
}

}  // namespace pumice::dv

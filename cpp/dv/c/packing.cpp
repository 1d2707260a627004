// Weight packing functions of the C interface.
#include "dv/weights/packing.h"

#include "dv/c/handles.h"

using namespace pumice::dv;

namespace {

constexpr uintptr_t kAlignment = 16;

// Calls `pack` with the weights and the target. `number`: error code to return for invalid arguments.
template <typename Pack>
int packed(size_t required, const Weights& weights, uint8_t* target, size_t* size, int number, const Pack& pack) {
  const size_t given = *size;
  if (given == 0) return *size = required, 0;
  if (!target) return refuse(number, "packed_weights: expected memory; given NULL");
  if (reinterpret_cast<uintptr_t>(target) % kAlignment != 0) return refuse(EINVAL, "packed_weights: expected a multiple of 16 bytes");
  if (!weights.values || !weights.bias) return refuse(number, "weights, bias: expected values; given NULL");
  pack(weights, std::span(reinterpret_cast<std::byte*>(target), given));
  *size = required;
  if (given >= required) return 0;
  return refuse(kRefused,
                ("packed_weights_size: expected at least " + std::to_string(required) + " bytes; given " + std::to_string(given)).c_str());
}

// Returns the result of `call`, or `number` if it rejects a dimension.
template <typename Call>
int refusing(int number, size_t* size, const Call& call) {
  if (!size) return refuse(number, "packed_weights_size: expected a size; given NULL");
  return guarded(call, [&](int failed) { return failed == kRefused ? number : failed; });
}

}  // namespace

int dmp_dv_pack_conv_weights(int n_channels, int kx, int ky, int n_kernels, const uint16_t quant_map[256], const void* weights,
                             const uint16_t* bias, const uint16_t* prelu, uint8_t* packed_weights, size_t* packed_weights_size) {
  return refusing(kRefused, packed_weights_size, [&] {
    const ConvDims dims{n_channels, kx, ky, n_kernels, quant_map != nullptr, prelu != nullptr};
    return packed(packed_conv_bytes(dims), {weights, quant_map, bias, prelu}, packed_weights, packed_weights_size, kRefused,
                  [&](const Weights& given, std::span<std::byte> target) { pack_conv_weights(dims, given, target); });
  });
}

int dmp_dv_pack_dil_weights(int n_channels, int kx, int ky, int n_kernels, const uint16_t quant_map[256], const void* weights,
                            const uint16_t* bias, const uint16_t* prelu, uint8_t* packed_weights, size_t* packed_weights_size) {
  return refusing(kRefused, packed_weights_size, [&] {
    const ConvDims dims{n_channels, kx, ky, n_kernels, quant_map != nullptr, prelu != nullptr};
    return packed(packed_dil_bytes(dims), {weights, quant_map, bias, prelu}, packed_weights, packed_weights_size, kRefused,
                  [&](const Weights& given, std::span<std::byte> target) { pack_dil_weights(dims, given, target); });
  });
}

int dmp_dv_pack_fc_weights(int c_input, int h_input, int w_input, int c_output, int h_output, int w_output, const uint16_t quant_map[256],
                           const void* weights, const uint16_t* bias, uint8_t* packed_weights, size_t* packed_weights_size) {
  return refusing(EINVAL, packed_weights_size, [&] {
    const FcDims dims{c_input, h_input, w_input, c_output, h_output, w_output, quant_map != nullptr};
    return packed(packed_fc_bytes(dims), {weights, quant_map, bias, nullptr}, packed_weights, packed_weights_size, EINVAL,
                  [&](const Weights& given, std::span<std::byte> target) { pack_fc_weights(dims, given, target); });
  });
}

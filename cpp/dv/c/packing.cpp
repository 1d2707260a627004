// Weight packing functions of the C interface.
#include "dv/weights/packing.h"

#include "dv/c/c_api_handles.h"

using namespace pumice::dv;

namespace {

constexpr uintptr_t kAlignment = 16;

// Calls `pack` with the weights and the target, or only stores the required size if `*size` is 0. Returns 0 or an error code;
// `error_code` is the code for missing arguments.
template <typename Pack>
int pack_weights_or_get_size(size_t required, const Weights& weights, uint8_t* target, size_t* size, int error_code, const Pack& pack) {
  const size_t capacity = *size;
  if (capacity == 0) return *size = required, 0;
  if (!target) return fail_with(error_code, "packed_weights: expected memory; given NULL");
  if (reinterpret_cast<uintptr_t>(target) % kAlignment != 0) return fail_with(EINVAL, "packed_weights: expected a multiple of 16 bytes");
  if (!weights.values || !weights.bias) return fail_with(error_code, "weights, bias: expected values; given NULL");
  pack(weights, std::span(reinterpret_cast<std::byte*>(target), capacity));
  *size = required;
  if (capacity >= required) return 0;
  return fail_with(
      kRejected,
      ("packed_weights_size: expected at least " + std::to_string(required) + " bytes; given " + std::to_string(capacity)).c_str());
}

// Returns the result of `call`, or `error_code` if it rejects a dimension.
template <typename Call>
int catch_dimension_errors(int error_code, size_t* size, const Call& call) {
  if (!size) return fail_with(error_code, "packed_weights_size: expected a size; given NULL");
  return catch_errors(call, [&](int code) { return code == kRejected ? error_code : code; });
}

}  // namespace

int dmp_dv_pack_conv_weights(int n_channels, int kx, int ky, int n_kernels, const uint16_t quant_map[256], const void* weights,
                             const uint16_t* bias, const uint16_t* prelu, uint8_t* packed_weights, size_t* packed_weights_size) {
  return catch_dimension_errors(kRejected, packed_weights_size, [&] {
    const ConvDims dims{n_channels, kx, ky, n_kernels, quant_map != nullptr, prelu != nullptr};
    return pack_weights_or_get_size(compute_packed_conv_bytes(dims), {weights, quant_map, bias, prelu}, packed_weights, packed_weights_size,
                                    kRejected,
                                    [&](const Weights& actual, std::span<std::byte> target) { pack_conv_weights(dims, actual, target); });
  });
}

int dmp_dv_pack_dil_weights(int n_channels, int kx, int ky, int n_kernels, const uint16_t quant_map[256], const void* weights,
                            const uint16_t* bias, const uint16_t* prelu, uint8_t* packed_weights, size_t* packed_weights_size) {
  return catch_dimension_errors(kRejected, packed_weights_size, [&] {
    const ConvDims dims{n_channels, kx, ky, n_kernels, quant_map != nullptr, prelu != nullptr};
    return pack_weights_or_get_size(compute_packed_dil_bytes(dims), {weights, quant_map, bias, prelu}, packed_weights, packed_weights_size,
                                    kRejected,
                                    [&](const Weights& actual, std::span<std::byte> target) { pack_dil_weights(dims, actual, target); });
  });
}

int dmp_dv_pack_fc_weights(int c_input, int h_input, int w_input, int c_output, int h_output, int w_output, const uint16_t quant_map[256],
                           const void* weights, const uint16_t* bias, uint8_t* packed_weights, size_t* packed_weights_size) {
  return catch_dimension_errors(EINVAL, packed_weights_size, [&] {
    const FcDims dims{c_input, h_input, w_input, c_output, h_output, w_output, quant_map != nullptr};
    return pack_weights_or_get_size(compute_packed_fc_bytes(dims), {weights, quant_map, bias, nullptr}, packed_weights, packed_weights_size,
                                    EINVAL,
                                    [&](const Weights& actual, std::span<std::byte> target) { pack_fc_weights(dims, actual, target); });
  });
}

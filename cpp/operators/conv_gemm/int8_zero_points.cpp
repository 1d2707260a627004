// Zero points and int32 biases of int8 GEMMs and convolutions.
#include <algorithm>

#include "core/error.h"
#include "operators/conv_gemm/conv_gemm_dispatch.h"

namespace pumice {

static bool is_signed_byte(DType dtype) {
  return dtype == DType::int8;
}

Macros make_int8_macros(const Int8Params& integers) {
  const auto flag = [](bool value) { return value ? "1" : "0"; };
  return {{"INTEGER", "1"},
          {"X_SIGNED", flag(is_signed_byte(integers.x))},
          {"W_SIGNED", flag(is_signed_byte(integers.w))},
          {"X_ZERO", flag(integers.x_zero.has_value())},
          {"W_ZERO", flag(integers.w_zero.has_value())}};
}

void bind_zero_points(StepBuilder& step, const Int8Params& integers) {
  if (integers.x_zero) step.bind("x_zero", integers.x_zero->operand);
  if (integers.w_zero) step.bind("w_zero", integers.w_zero->operand);
}

StepBuilder& set_zero_points(StepBuilder& step, const Int8Params& integers) {
  const ZeroPoints x = integers.x_zero.value_or(ZeroPoints{}), w = integers.w_zero.value_or(ZeroPoints{});
  step.set("x_zero_first", x.first).set("x_zero_row", x.stride);
  return step.set("w_zero_first", w.first).set("w_zero_column", w.stride);
}

void pack_as_int32(const PackContext& node, size_t input, int64_t count, PackedWeight& packed) {
  const TensorDesc& source_desc = node.input(input);
  if (!source_desc.is_packed())
    throw UnsupportedError("node '" + std::string(node.node) + "': input " + std::to_string(input) + " has strides, " +
                           to_string(source_desc) + "; it must be row-major");
  packed.desc = TensorDesc(DType::int32, {count});
  const std::string load = source_desc.dtype == DType::int8    ? "pm_load_i8(t, i)"
                           : source_desc.dtype == DType::uint8 ? "pm_load_u8(t, i)"
                                                               : "t[i]";
  const auto kernel = node.kernel("pack_int32.comp", DType::int32, {{"LOAD(t, i)", load}});
  const int64_t step = source_desc.elements() == 1 ? 0 : 1;
  packed.steps = make_elementwise_packing(kernel, count, [=](StepBuilder& builder) { builder.set("count", count).set("step", step); });
}

std::optional<ZeroPoints> get_zero_points(LowerContext& node, size_t input) {
  if (!node.has_input(input)) return {};
  if (const HostTensor* host = node.host_tensor(input)) {
    const auto values = host->as_int64();
    if (std::all_of(values.begin(), values.end(), [](int64_t value) { return value == 0; })) return {};
  }
  return ZeroPoints{node.get_packed_input(input)};
}

}  // namespace pumice

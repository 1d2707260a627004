// NNAPI TRANSPOSE_CONV_2D. A quantized one is a convolution of the zero-interleaved image, so that integers accumulate exactly.
#include <algorithm>
#include <limits>
#include <span>

#include "graph/nnapi/images.h"
#include "graph/nnapi/matmul_conv.h"
#include "graph/nnapi/operations.h"

namespace pumice::nnapi {
namespace {

constexpr size_t kOutputShape = 3;  // operand index, in the implicit form

struct AxisPadding {
  int64_t stride, head, tail;
};

struct OperandIndices {
  size_t strides, activation, layout;  // operand indices; `strides` is that of the width, the height follows
};

OperandIndices get_operand_indices(const Operands& o) {
  return o.is_implicit() ? OperandIndices{5, 7, 8} : OperandIndices{7, 9, 10};
}

bool uses_nchw(const Operands& o) {
  return o.read_int(get_operand_indices(o).layout) != 0;
}

// Returns SAME padding for a result of `output_size` elements. The tail is negative if the filter is smaller than the stride.
AxisPadding compute_same_padding(int64_t output_size, int64_t stride, int64_t kernel) {
  const int64_t steps = output_size / stride + (output_size % stride != 0 ? 1 : 0);
  const int64_t covered = checked_add(checked_mul(steps - 1, stride, "a stride"), kernel, "a stride");
  const int64_t head = std::max<int64_t>(covered - output_size, 0) / 2;
  return {stride, head, covered - output_size - head};
}

// Returns the stride and padding of the height (0) or width (1); nullopt if the filter size or the requested output size is unknown.
std::optional<AxisPadding> read_axis_padding(const Operands& o, size_t k, const std::optional<int64_t>& kernel) {
  const size_t stride_operand = get_operand_indices(o).strides + 1 - k;
  const int64_t stride = o.read_int(stride_operand);
  if (stride < 1) o.fail(stride_operand, "N1.3", "a positive number expected; given " + std::to_string(stride));
  if (!o.is_implicit()) {
    const size_t head = k == 0 ? 5 : 3;
    if (o.read_int(head) < 0) o.fail(head, "N1.3", "a non-negative number expected; given " + std::to_string(o.read_int(head)));
    return AxisPadding{stride, o.read_int(head), o.read_int(head + 1)};
  }
  if (o.read_int(kOutputShape + 1) != 1) return AxisPadding{stride, 0, 0};
  const auto output_size = o.known_ints(kOutputShape);
  if (!output_size) o.reject(kOutputShape, "which is not a constant");
  const int64_t size = output_size->at((uses_nchw(o) ? 2 : 1) + k);
  if (size < 1) o.fail(kOutputShape, "N1.4", "a positive size expected; given " + std::to_string(size));
  return kernel ? std::optional(compute_same_padding(size, stride, *kernel)) : std::nullopt;
}

// Checks that no size is 0, except the batch.
void expect_nonempty(Operands& o) {
  for (size_t axis = 1; axis < 4; ++axis)
    if (o.size(0, axis) == 0) o.fail(0, "N1.7", "positive sizes expected after the batch axis; given " + o.format_shape(0));
  for (size_t axis = 0; axis < 4; ++axis)
    if (o.size(1, axis) == 0) o.fail(1, "N1.7", "positive sizes expected; given " + o.format_shape(1));
}

void check_transpose_conv(Operands& o) {
  for (const size_t i : {0, 1}) o.expect_rank(i, 4);
  if (o.is_implicit()) o.expect_length(kOutputShape, 4, "sizes expected", "N1.4");
  check_bias_length(o, 0);
  const size_t first = uses_nchw(o) ? 2 : 1, channels = uses_nchw(o) ? 1 : 3;
  if (const auto depth = o.size(1, 3)) o.expect_size(0, channels, *depth);
  if (const auto depth = o.size(0, channels)) o.assume_size(1, 3, *depth);
  expect_nonempty(o);
  for (const size_t k : {0, 1}) {
    const auto kernel = o.size(1, 1 + k), size = o.size(0, first + k);
    const auto axis = read_axis_padding(o, k, kernel);
    if (!axis || !kernel || !size) continue;
    const int64_t output_size = checked_mul(*size, axis->stride, "a size") + *kernel - axis->stride - axis->head - axis->tail;
    if (output_size < 1)
      o.fail("N1.3", "an output of at least one element on each axis expected; given padding that leaves " + std::to_string(output_size) +
                         (k == 0 ? " rows" : " columns"));
  }
}

// Applies the activation. Without an upper bound, clamps float32 infinities to the largest finite numbers.
ValueId clamp_activation(Expansion& e, ValueId y, Activation activation) {
  if (e.dtype(0) != DType::float32 || (activation != Activation::none && activation != Activation::relu))
    return e.apply_activation(y, activation);
  constexpr double kMaxFloat = std::numeric_limits<float>::max();
  return e.add("Clip",
               {y, e.add_scalar(activation == Activation::relu ? 0 : -kMaxFloat, DType::float32), e.add_scalar(kMaxFloat, DType::float32)});
}

ValueId add_real_conv_transpose(Expansion& e, ValueId x, std::span<const AxisPadding> axes, Activation activation) {
  std::vector<int64_t> pads(4), strides(2), more(2);
  for (size_t k = 0; k < 2; ++k) {
    pads[k] = axes[k].head;
    pads[2 + k] = std::max<int64_t>(axes[k].tail, 0);
    more[k] = std::max<int64_t>(-axes[k].tail, 0);
    strides[k] = axes[k].stride;
  }
  const ValueId w = e.add("Transpose", {e[1]}, make_attrs({{"perm", std::vector<int64_t>{3, 0, 1, 2}}}));
  const ValueId y = e.add("ConvTranspose", {x, w, e[2]}, make_attrs({{"pads", pads}, {"strides", strides}, {"output_padding", more}}));
  return clamp_activation(e, y, activation);
}

// Pads `x`; negative pads crop it.
ValueId apply_padding(Expansion& e, ValueId x, const std::vector<int64_t>& pads) {
  const ValueId zero = e.add_scalar(e.quantization(0).zero_point.value_or(0), e.dtype(0));
  std::vector<int64_t> more(pads), fewer(pads);
  for (int64_t& pad : more) pad = std::max<int64_t>(pad, 0);
  for (int64_t& pad : fewer) pad = std::min<int64_t>(pad, 0);
  const auto any = [](const std::vector<int64_t>& numbers) {
    return std::ranges::any_of(numbers, [](int64_t number) { return number != 0; });
  };
  if (any(more)) x = e.add("Pad", {x, e.add_int64_vector(more), zero});
  return any(fewer) ? e.add("Pad", {x, e.add_int64_vector(fewer), zero}) : x;
}

ValueId add_quantized_conv_transpose(Expansion& e, ValueId x, std::span<const AxisPadding> axes, Activation activation) {
  const AxisLength batch = e.get_length(x, 0), rows = e.get_length(x, 2), columns = e.get_length(x, 3), channels = e.get_length(x, 1);
  const int64_t down = axes[0].stride, across = axes[1].stride;
  if (down > 1 || across > 1) {
    x = e.reshape(x, {batch, channels, rows, {1}, columns, {1}});
    x = apply_padding(e, x, {0, 0, 0, 0, 0, 0, 0, 0, 0, down - 1, 0, across - 1});
    x = e.reshape(x, {batch, channels, e.mul_lengths(rows, {down}), e.mul_lengths(columns, {across})});
  }
  std::vector<int64_t> pads(8, 0);
  for (size_t k = 0; k < 2; ++k) {
    const int64_t reach = e.size(1, 1 + k) - 1;
    pads[2 + k] = reach - axes[k].head;
    pads[6 + k] = reach - axes[k].tail - (axes[k].stride - 1);
  }
  x = apply_padding(e, x, pads);
  constexpr int64_t kBefore = std::numeric_limits<int64_t>::min();
  const ValueId flipped = e.add("Slice", {e[1], e.add_int64_vector({-1, -1}), e.add_int64_vector({kBefore, kBefore}),
                                          e.add_int64_vector({1, 2}), e.add_int64_vector({-1, -1})});
  const ValueId w = e.add("Transpose", {flipped}, make_attrs({{"perm", std::vector<int64_t>{0, 3, 1, 2}}}));
  return add_quantized_conv(e, x, w, activation, e.declared_quantization(), {});
}

void expand_transpose_conv(Expansion& e) {
  const Activation activation = e.read_activation(get_operand_indices(e.rules()).activation);
  const bool is_nchw = uses_nchw(e.rules());
  check_filter(e, 0);
  check_bias(e);
  std::vector<AxisPadding> axes;
  for (const size_t k : {0, 1}) axes.push_back(*read_axis_padding(e.rules(), k, e.size(1, 1 + k)));
  const ValueId x = to_nchw(e, e[0], is_nchw);
  if (!e.is_quantized(0)) return e.add_output(from_nchw(e, add_real_conv_transpose(e, x, axes, activation), is_nchw));
  e.add_output(from_nchw(e, add_quantized_conv_transpose(e, x, axes, activation), is_nchw), e.declared_quantization());
}

}  // namespace

Operations make_transpose_conv_operations() {
  constexpr DTypeSet reals = kFloat | kQuant;
  const auto form = [&](std::vector<Operand> padding) {
    std::vector<Operand> inputs{tensor_arg("x", reals), {{"filter", reals}, OperandKind::tensor, true}, tensor_arg("bias", kFloat | kInt)};
    inputs.insert(inputs.end(), padding.begin(), padding.end());
    inputs.insert(inputs.end(),
                  {scalar_arg("stride_width"), scalar_arg("stride_height"), scalar_arg("activation"), scalar_arg("nchw", kTruth)});
    return inputs;
  };
  return {
      {"nnapi::TRANSPOSE_CONV_2D",
       3,
       "Each place of the image times the filters, [out, height, width, in], added up `stride` apart; plus the bias, then the activation.",
       form({scalar_arg("padding_left"), scalar_arg("padding_right"), scalar_arg("padding_top"), scalar_arg("padding_bottom")}),
       {tensor_arg("y", reals)},
       expand_transpose_conv,
       form({list_arg("output_shape"), scalar_arg("padding_scheme")}),
       check_transpose_conv}};
}

}  // namespace pumice::nnapi
